"""Numbers of a node that was taken over: they spoil nothing for others."""

from __future__ import annotations

import math

import grpc.aio
import pytest
from running_orchestrator import Running, error_of
from scripted_node import RUNNING, ScriptedNode, part
from timeslice_api.errors import InvalidRequest, TimesliceError, Unavailable
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2, types_pb2

GREATEST = (1 << 64) - 1
GROUPS = {"lies": ("d9",)}


async def refused(node: ScriptedNode) -> TimesliceError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.connect()
    return error_of(caught.value)


@pytest.mark.parametrize("epoch", [10_002, (1 << 63) - 2, GREATEST])
async def test_no_epoch_so_far_ahead_that_the_numbers_could_end_is_gone_above(running: Running, epoch: int) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        error = await refused(ScriptedNode(running.channel, "n2", GROUPS, epoch=epoch))
        assert isinstance(error, InvalidRequest)
        assert f"hello.highest_epoch {epoch} is too far ahead of epoch 1" in error.message
        assert running.server.epoch == 1
        await running.lease("r1", "job-a")


async def test_a_node_that_is_ahead_again_and_again_has_to_wait(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        for _ in range(10):
            async with ScriptedNode(running.channel, "n2", GROUPS, epoch=running.server.epoch + 10_000):
                pass
        epoch = running.server.epoch
        error = await refused(ScriptedNode(running.channel, "n2", GROUPS, epoch=epoch + 1))
        assert isinstance(error, Unavailable)
        assert error.retryable
        async with ScriptedNode(running.channel, "n3", {"h": ("d2",)}, epoch=epoch):  # which knows this one's
            assert (await running.lease("r1", "job-a")).fencing_token < 1 << 63


async def test_a_token_that_nobody_can_have_given_uses_none_up(running: Running) -> None:
    async with (
        ScriptedNode(running.channel, "n1", {"g": ("d1",)}),
        ScriptedNode(running.channel, "n2", GROUPS, token=GREATEST),
    ):
        assert (await running.lease("r1", "job-a")).fencing_token < 1 << 63


def lie(*, size: int = 0, **seconds: float) -> types_pb2.Part:
    told = part("job-x", "lies", "d9", state=RUNNING)
    told.bytes = size
    told.timings.CopyFrom(types_pb2.Timings(**seconds))
    return told


@pytest.mark.parametrize(
    ("told", "field"),
    [
        (lie(size=GREATEST), r"report.parts\[0\].bytes"),
        (lie(lock_s=math.nan), r"report.parts\[0\].timings"),
        (lie(restore_s=math.inf), r"report.parts\[0\].timings"),
        (lie(unlock_s=-1), r"report.parts\[0\].timings"),
    ],
    ids=["bytes", "nan", "inf", "negative"],
)
async def test_what_cannot_be_summed_ends_the_stream_and_is_no_sum(
    running: Running, told: types_pb2.Part, field: str
) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        node = await ScriptedNode(running.channel, "n2", GROUPS).connect()
        await node.say(pb.AgentMessage(report=pb.Report(parts=[told])))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await node.ended()
        with pytest.raises(InvalidRequest, match=field):
            raise error_of(caught.value)
        await running.call(running.stub.ListGroups(orchestrator_pb2.ListGroupsRequest()))


async def test_a_node_cannot_tell_of_ever_more_parts(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n2", GROUPS).connect()
    for first in range(0, 22_000, 2_000):
        parts = [part(f"job-{number}", "lies", "d9", state=RUNNING) for number in range(first, first + 2_000)]
        ended = [each.member for each in parts[1000:]]  # half of them: those do not count
        await node.say(pb.AgentMessage(report=pb.Report(parts=parts)))
        await node.say(pb.AgentMessage(report=pb.Report(ended=ended)))
    await running.until(lambda group: len(group.members) == 11_000, "lies", within_s=20)
    for first in range(100_000, 110_000, 2_000):
        parts = [part(f"job-{number}", "lies", "d9", state=RUNNING) for number in range(first, first + 2_000)]
        await node.say(pb.AgentMessage(report=pb.Report(parts=parts)))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.ended()
    assert error_of(caught.value).message == "node n2 tells of more than 20000 parts"


async def test_a_node_has_no_more_devices_and_groups_than_machines_have(running: Running) -> None:
    error = await refused(ScriptedNode(running.channel, "n2", {}, devices=[f"d{n}" for n in range(1025)]))
    assert error.message == "hello.devices has 1025 entries; 1024 are allowed"
    error = await refused(ScriptedNode(running.channel, "n2", {f"g{n}": () for n in range(1025)}))
    assert error.message == "hello.groups has 1025 entries; 1024 are allowed"


async def test_a_fault_of_a_million_letters_is_cut(running: Running) -> None:
    failed = part("job-x", "lies", "d9", state=types_pb2.PART_STATE_FAILED)
    failed.fault.CopyFrom(types_pb2.Fault(reason="X" * 1_000_000, message="m" * 1_000_000, hint="h" * 1_000_000))
    async with ScriptedNode(running.channel, "n2", GROUPS, parts=[failed]):
        group = await running.until(lambda group: len(group.members) == 1, "lies")
        assert group.ByteSize() < 10_000


async def test_the_words_of_a_fault_do_nothing_to_the_terminal_of_who_reads_them(running: Running) -> None:
    failed = part("job-x", "lies", "d9", state=types_pb2.PART_STATE_FAILED)
    failed.fault.CopyFrom(types_pb2.Fault(reason="Odd", message="\x1b[2Jall is well\r\nlies  -  -"))
    async with ScriptedNode(running.channel, "n2", GROUPS, parts=[failed]):
        group = await running.until(lambda group: len(group.members) == 1, "lies")
        assert group.members[0].quarantine_reason == r"\x1b[2Jall is well\r\nlies  -  -"
