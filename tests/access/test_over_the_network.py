"""Over TCP, from the attacker's side: what a call without a token, or with somebody else's, comes to."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc.aio
import pytest
from certificates import Authority
from network import Network, as_, bearer, token_of, write_tokens
from running_orchestrator import stub_of
from timeslice_api.errors import ConfigError, Forbidden, InvalidRequest, TimesliceError, Unauthenticated, Unavailable
from timeslice_api.v1alpha1 import agent_link_pb2, orchestrator_pb2
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.rpc import calls
from timeslice_orchestrator.server import Orchestrator


def acquire(job: str, group: str = "g", request_id: str = "r1") -> pb.AcquireRequest:
    return pb.AcquireRequest(request_id=request_id, job_id=job, group_id=group, wait_s=5, holder="a test")


ASKED = {
    "Acquire": acquire("job-a"),
    "Yield": pb.YieldRequest(lease_id="lease-r1", job_id="job-a"),
    "KeepAlive": pb.KeepAliveRequest(job_id="job-a", lease_ids=["lease-r1"]),
    "Withdraw": pb.WithdrawRequest(request_id="r1", job_id="job-a"),
    "ListGroups": pb.ListGroupsRequest(),
    "GetGroup": pb.GetGroupRequest(group_id="g"),
    "ForceRelease": pb.ForceReleaseRequest(group_id="g"),
    "Drain": pb.DrainRequest(group_id="g"),
    "Resume": pb.ResumeRequest(group_id="g"),
    "Reset": pb.ResetRequest(group_id="g", job_id="job-a"),
}
METHODS = orchestrator_pb2.DESCRIPTOR.services_by_name["Orchestrator"].methods_by_name


def test_each_method_is_tried_without_a_token() -> None:
    assert {*ASKED, "WatchGroup"} == {*METHODS}


@pytest.mark.parametrize("method", ASKED)
async def test_no_token_no_answer(network: Network, method: str) -> None:
    with pytest.raises(Unauthenticated, match="the call has no token") as refused:
        await network.call(getattr(network.stub, method)(ASKED[method]))
    assert "TIMESLICE_TOKEN_FILE" in refused.value.hint


@pytest.mark.parametrize("token", ["forged", "", "x" * 9000, token_of("trainers") + "x"])
async def test_a_forged_token_is_nobodys(network: Network, token: str) -> None:
    with pytest.raises(Unauthenticated) as refused:
        await network.call(network.stub.Acquire(acquire("job-a"), metadata=bearer(token)))
    assert not token or token not in str(refused.value)


async def test_a_watch_and_a_nodes_stream_need_a_token_too(network: Network) -> None:
    async def watched() -> None:
        async for _ in network.stub.WatchGroup(pb.WatchGroupRequest(group_id="g")):
            pass

    with pytest.raises(Unauthenticated):
        await network.call(watched())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await network.dial("n9", {"g": ("d9",)}, token="").connect()
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("method", METHODS)
async def test_a_call_whose_request_does_not_come_is_let_go(
    network: Network, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(calls, "_REQUEST_S", 0.2)
    assert network.channel
    begin = network.channel.stream_stream(f"/{METHODS[method].containing_service.full_name}/{method}")
    waiting: Any = begin(timeout=5)
    with pytest.raises(Unavailable, match=r"no request came within 0.2 s"):
        await network.call(waiting.read())
    empty: Any = begin(timeout=5)
    await empty.done_writing()
    with pytest.raises(InvalidRequest, match="ended without a request"):
        await network.call(empty.read())


async def test_the_owner_of_a_token_takes_turns(network: Network) -> None:
    answer = await network.call(network.stub.Acquire(acquire("job-a"), metadata=as_("trainers")))
    request = pb.YieldRequest(lease_id=answer.lease.lease_id, job_id="job-a")
    await network.call(network.stub.Yield(request, metadata=as_("trainers")))


async def test_the_sockets_owner_needs_no_token(network: Network) -> None:
    assert (await network.running.lease("r1", "job-b")).lease_id
    assert len((await network.running.call(network.running.stub.ListGroups(pb.ListGroupsRequest()))).groups) == 2


@pytest.mark.parametrize("method", ["Acquire", "Yield", "KeepAlive", "Withdraw"])
async def test_a_neighbours_job_id_is_refused_and_the_neighbour_notices_nothing(network: Network, method: str) -> None:
    lease = (await network.call(network.stub.Acquire(acquire("job-a"), metadata=as_("trainers")))).lease
    with pytest.raises(Forbidden, match="token 'neighbours' is for job job-b, not for job job-a"):
        await network.call(getattr(network.stub, method)(ASKED[method], metadata=as_("neighbours")))
    kept = await network.call(
        network.stub.KeepAlive(
            pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id]), metadata=as_("trainers")
        )
    )
    assert not kept.lost_lease_ids


async def test_a_neighbours_lease_is_not_ended_under_a_name_of_ones_own(network: Network) -> None:
    lease = (await network.call(network.stub.Acquire(acquire("job-a"), metadata=as_("trainers")))).lease
    for request, method in (
        (pb.YieldRequest(lease_id=lease.lease_id, job_id="job-b"), network.stub.Yield),
        (pb.WithdrawRequest(request_id="r1", job_id="job-b"), network.stub.Withdraw),
        (acquire("job-b"), network.stub.Acquire),
    ):
        with pytest.raises(TimesliceError, match=r"another job|does not hold"):
            await network.call(method(request, metadata=as_("neighbours")))
    assert [holder.job_id for holder in (await network.running.group()).holders] == ["job-a"]


async def test_a_token_for_a_group_opens_and_shows_no_other(network: Network) -> None:
    with pytest.raises(Forbidden, match="is for group g, not for group h"):
        await network.call(network.stub.Acquire(acquire("job-a", "h"), metadata=as_("trainers")))
    with pytest.raises(Forbidden):
        await network.call(network.stub.GetGroup(pb.GetGroupRequest(group_id="h"), metadata=as_("trainers")))
    seen = await network.call(network.stub.ListGroups(pb.ListGroupsRequest(), metadata=as_("trainers")))
    assert [group.group_id for group in seen.groups] == ["g"]


@pytest.mark.parametrize("name", ["../g", "g/../h", "/etc/passwd", "g\x00", "", "g" * 300])
async def test_path_tricks_in_names_are_no_names(network: Network, name: str) -> None:
    for request in (acquire("job-a", name), acquire(name, "g")):
        with pytest.raises(InvalidRequest):
            await network.call(network.stub.Acquire(request, metadata=as_("anybody")))


async def test_one_node_cannot_speak_for_another(network: Network) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="token 'n2' is for node n2, not for node n1"):
        await network.dial("n1", {"g": ("d1",)}, token="n2").connect()
    with pytest.raises(grpc.aio.AioRpcError, match="may not speak for a node"):
        await network.dial("n1", {"g": ("d1",)}, token="operators").connect()
    group = await network.running.group()
    assert [device.connected for device in group.devices] == [True]  # the true one was not even disturbed


async def test_one_node_cannot_say_that_a_process_of_another_has_ended(network: Network) -> None:
    request = acquire("job-a")
    request.process = "n1/7/9"
    await network.call(network.stub.Acquire(request, metadata=as_("trainers")))
    liar = await network.dial("n2", {"i": ("d9",)}, token="n2").connect()
    await liar.say(agent_link_pb2.AgentMessage(report=agent_link_pb2.Report(ended_processes=["n1/7/9"])))
    with pytest.raises(grpc.aio.AioRpcError, match="'n1/7/9' is no process of node n2"):
        await liar.ended()
    assert [holder.job_id for holder in (await network.running.group()).holders] == ["job-a"]


@pytest.mark.parametrize("name", ["trainers", "anybody", "n1"])
@pytest.mark.parametrize("method", ["ForceRelease", "Drain", "Resume", "Reset"])
async def test_only_an_admin_may_do_what_admins_do_and_each_try_is_written_down(
    network: Network, caplog: pytest.LogCaptureFixture, name: str, method: str
) -> None:
    metadata = (*as_(name), ("x-request-id", "try-7"))
    with caplog.at_level(logging.INFO, "timeslice.audit"), pytest.raises(Forbidden, match=f"token '{name}' may not"):
        await network.call(getattr(network.stub, method)(ASKED[method], metadata=metadata))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "timeslice.audit"]
    job = "job-a" if method == "Reset" else "any"
    assert f"group=g job={job} by token '{name}': refused: " in line
    assert line.endswith("(request try-7)")


async def test_what_an_admin_does_is_written_down_with_its_outcome(
    network: Network, caplog: pytest.LogCaptureFixture
) -> None:
    await network.call(network.stub.Acquire(acquire("job-a"), metadata=as_("trainers")))
    with caplog.at_level(logging.INFO, "timeslice.audit"):
        request = pb.ForceReleaseRequest(group_id="g", job_id="job-a")
        await network.call(network.stub.ForceRelease(request, metadata=as_("operators")))
        with pytest.raises(TimesliceError):
            await network.call(network.stub.Drain(pb.DrainRequest(group_id="none"), metadata=as_("operators")))
        with pytest.raises(Unauthenticated):
            await network.call(network.stub.Drain(pb.DrainRequest(group_id="g")))
    done, failed, refused = [record.getMessage() for record in caplog.records if record.name == "timeslice.audit"]
    assert done.startswith("audit: release group=g job=job-a by token 'operators': done")
    assert "group=none" in failed
    assert "failed: group 'none' is not known" in failed
    assert "by somebody at ipv4:127.0.0.1:" in refused


async def test_a_token_that_was_taken_out_of_the_file_is_refused_at_the_next_call(network: Network) -> None:
    async def refused() -> bool:
        try:
            await network.call(network.stub.ListGroups(pb.ListGroupsRequest(), metadata=as_("trainers")))
        except Unauthenticated:
            return True
        return False

    assert not await refused()
    write_tokens(network.tokens, "n1")
    async with asyncio.timeout(5):
        while not await refused():
            await asyncio.sleep(0.02)


async def test_an_orchestrator_that_other_machines_reach_does_not_start_without_tokens(network: Network) -> None:
    folder = network.running.config.state_dir.parent
    config = OrchestratorConfig(folder / "other", ("0.0.0.0:0",), tls=Authority(folder).certificate("localhost"))
    with pytest.raises(ConfigError, match="can be reached from other machines, and nothing says who may call"):
        await Orchestrator(config).start()


async def test_on_the_loopback_it_may_be_open_and_says_so(network: Network, caplog: pytest.LogCaptureFixture) -> None:
    config = OrchestratorConfig(network.running.config.state_dir.parent / "other", ("127.0.0.1:0",))
    async with Orchestrator(config) as orchestrator, grpc.aio.insecure_channel(orchestrator.addresses[0]) as channel:
        await network.call(stub_of(channel).ListGroups(pb.ListGroupsRequest()))
    assert "everybody on this machine may do everything at 127.0.0.1:0" in caplog.text
