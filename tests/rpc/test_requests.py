"""What clients may not send: each is refused with the field named, and nothing changes."""

from __future__ import annotations

import math
from typing import Any

import grpc.aio
import pytest
from google.protobuf.message import Message
from running_orchestrator import Running
from scripted_node import ScriptedNode
from timeslice_api import status
from timeslice_api.errors import InvalidRequest
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb


def acquire(**changes: Any) -> pb.AcquireRequest:
    return pb.AcquireRequest(**{"request_id": "r1", "job_id": "job-a", "group_id": "g", **changes})


BAD = {
    "no request id": ("Acquire", acquire(request_id=""), "request_id is empty"),
    "a long request id": ("Acquire", acquire(request_id="r" * 129), "request_id has 129 characters; 128 are allowed"),
    "a request id of control characters": ("Acquire", acquire(request_id="a\nb"), "request_id has characters"),
    "no job": ("Acquire", acquire(job_id=""), "job_id is empty"),
    "a job of 10,000 characters": ("Acquire", acquire(job_id="j" * 10_000), "job_id has 10000 characters"),
    "a job with a space": ("Acquire", acquire(job_id="job a"), "job_id 'job a' is not a name"),
    "no group": ("Acquire", acquire(group_id=""), "set exactly one of group_id and group_ids"),
    "both kinds of group": ("Acquire", acquire(group_ids=["h"]), "set exactly one of group_id and group_ids"),
    "a bad group": ("Acquire", acquire(group_id="../g"), "group_id '../g' is not a name"),
    "a bad group among others": (
        "Acquire",
        acquire(group_id="", group_ids=["g", ""]),
        "group_ids[1] is empty",
    ),
    "too many groups": (
        "Acquire",
        acquire(group_id="", group_ids=[f"g{n}" for n in range(65)]),
        "group_ids has 65 entries; 64 are allowed",
    ),
    "a negative wait": ("Acquire", acquire(wait_s=-1), "wait_s is -1.0; it must be a number of seconds"),
    "a wait that is no number": ("Acquire", acquire(wait_s=math.nan), "wait_s is nan"),
    "an endless wait": ("Acquire", acquire(wait_s=math.inf), "wait_s is inf"),
    "a long holder": ("Acquire", acquire(holder="h" * 254), "holder has 254 characters; 253 are allowed"),
    "a holder of two lines": (
        "Acquire",
        acquire(holder="h\n"),
        "holder has characters that cannot be printed",
    ),
    "a yield without a lease": ("Yield", pb.YieldRequest(job_id="job-a"), "lease_id is empty"),
    "a yield without a job": ("Yield", pb.YieldRequest(lease_id="l"), "job_id is empty"),
    "a renewal without a job": ("KeepAlive", pb.KeepAliveRequest(lease_ids=["l"]), "job_id is empty"),
    "a renewal of an empty lease": (
        "KeepAlive",
        pb.KeepAliveRequest(job_id="job-a", lease_ids=["l", ""]),
        "lease_ids[1] is empty",
    ),
    "a renewal of too many": (
        "KeepAlive",
        pb.KeepAliveRequest(job_id="job-a", lease_ids=["l"] * 1025),
        "lease_ids has 1025 entries; 1024 are allowed",
    ),
    "a withdrawal of nothing": ("Withdraw", pb.WithdrawRequest(job_id="job-a"), "request_id is empty"),
    "a withdrawal by nobody": ("Withdraw", pb.WithdrawRequest(request_id="r1"), "job_id is empty"),
    "a group without a name": ("GetGroup", pb.GetGroupRequest(), "group_id is empty"),
    "a release in no group": ("ForceRelease", pb.ForceReleaseRequest(job_id="job-a"), "group_id is empty"),
    "a release of a bad job": (
        "ForceRelease",
        pb.ForceReleaseRequest(group_id="g", job_id="job a"),
        "job_id 'job a' is not a name",
    ),
    "a drain of nothing": ("Drain", pb.DrainRequest(), "group_id is empty"),
    "a reset of nobody": ("Reset", pb.ResetRequest(), "job_id is empty"),
    "a reset in a bad group": ("Reset", pb.ResetRequest(job_id="j", group_id="a b"), "group_id 'a b' is not a name"),
    "a resume of nothing": ("Resume", pb.ResumeRequest(), "group_id is empty"),
}


@pytest.mark.parametrize(("method", "request_", "problem"), BAD.values(), ids=BAD.keys())
async def test_a_bad_field_is_named(running: Running, method: str, request_: Message, problem: str) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        with pytest.raises(InvalidRequest) as caught:
            await running.call(getattr(running.stub, method)(request_))
        assert problem in caught.value.message
        group = await running.group()
        assert (len(group.holders), len(group.waiters)) == (0, 0)


async def test_a_watch_of_a_bad_group_ends_with_the_error(running: Running) -> None:
    call = running.stub.WatchGroup(pb.WatchGroupRequest())
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await anext(aiter(call))
    assert isinstance(status.from_rpc(caught.value), InvalidRequest)


@pytest.mark.parametrize("method", ["Acquire", "Yield", "KeepAlive", "WatchGroup", "Drain"])
async def test_bytes_that_are_no_message_are_the_callers_fault(running: Running, method: str) -> None:
    make: Any = running.channel.unary_stream if method == "WatchGroup" else running.channel.unary_unary
    call = make(f"/timeslice.v1alpha1.Orchestrator/{method}")(b"\xff\xff\xff")
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a message of this method" in await call.details()


async def test_a_method_that_does_not_exist_is_told_as_such(running: Running) -> None:
    steal: Any = running.channel.unary_unary("/timeslice.v1alpha1.Orchestrator/Steal")
    call = steal(b"")
    assert await call.code() is grpc.StatusCode.UNIMPLEMENTED


async def test_a_message_over_four_megabytes_is_refused_and_the_next_one_is_served(running: Running) -> None:
    call = running.stub.KeepAlive(pb.KeepAliveRequest(job_id="j" * (5 << 20)))
    assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await running.call(running.stub.ListGroups(pb.ListGroupsRequest()))


async def test_a_longest_wait_is_shortened_rather_than_refused(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        assert (await running.lease("r1", "job-a", wait_s=1e9)).job_id == "job-a"
