"""The nodes' streams: hello, commands, results, and every way in which they break."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from running_orchestrator import Running, error_of, open_channel
from scripted_node import PARKED, RUNNING, ScriptedNode, part
from timeslice_api.errors import InvalidRequest, Stopping, Unavailable
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2, types_pb2
from timeslice_orchestrator.access.gate import Gate
from timeslice_orchestrator.core.model import Settings
from timeslice_orchestrator.listen import Listener
from timeslice_orchestrator.rpc import agent_link
from timeslice_orchestrator.serving import Serving
from timeslice_orchestrator.store.sqlite import SqliteStore

TWO_JOBS = (part("job-a", "g", "d1", state=RUNNING), part("job-b", "g", "d1", state=PARKED))


async def ended(node: ScriptedNode) -> Exception:
    """The error by which the orchestrator ended a node's stream."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await node.ended()
    return error_of(caught.value)


async def test_a_hello_is_answered_with_the_epoch_and_makes_the_nodes_groups_known(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1", "d2")}, parts=TWO_JOBS) as node:
        assert node.welcome.epoch == running.server.epoch == 1
        group = await running.group()
        assert [(d.device_id, d.node, d.connected) for d in group.devices] == [("d1", "n1", True), ("d2", "n1", True)]
        assert {member.job_id: member.parts[0].state for member in group.members} == {"job-a": RUNNING, "job-b": PARKED}


async def test_a_hand_off_is_a_command_with_epoch_token_and_targets(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS) as node:
        lease = await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b"))
        await running.until(lambda group: len(group.waiters) == 1)
        assert node.commands.empty()  # lazy: nothing moves while the holder works
        await running.release(lease)
        answer = await waiting
        assert answer.restored
        command = await node.commands.get()
        assert command.epoch == 1
        assert command.fencing_token >= lease.fencing_token
        assert command.lock_timeout_s > 0
        first = command.targets[0]
        assert (first.member.job_id, first.state) == ("job-a", PARKED)  # what leaves goes before what comes
        group = await running.group()
        assert {member.job_id: member.parts[0].state for member in group.members} == {"job-a": PARKED, "job-b": RUNNING}


async def test_a_report_changes_what_people_see(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}) as node:
        await node.joins(part("job-a", "g", "d1", state=RUNNING))
        await running.until(lambda group: [member.job_id for member in group.members] == ["job-a"])
        gone = types_pb2.MemberKey(job_id="job-a", group_id="g")
        await node.say(pb.AgentMessage(report=pb.Report(ended=[gone])))
        await running.until(lambda group: not group.members)


async def test_a_device_that_a_node_declares_anew_takes_its_jobs_along(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS, devices=("d1", "d2")) as node:
        await node.declares({"g": ("d1",), "h": ("d2",)})
        await node.joins(part("job-c", "h", "d2", state=PARKED))
        assert await asyncio.wait_for(node.told.get(), 5) == {"g": ("d1",), "h": ("d2",)}
        group = await running.until(lambda group: len(group.members) == 1, "h")
        assert [device.device_id for device in group.devices] == ["d2"]
        answer = await running.acquire("r1", "job-c", "h")
        assert answer.restored
        await node.declares({"h": ("d1", "d2")})
        assert await asyncio.wait_for(node.told.get(), 5) == {"h": ("d1", "d2")}


async def test_a_cut_link_changes_nothing_but_that_nothing_is_granted_there(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS).connect()
    lease = await running.lease("r1", "job-a")
    await node.cut()
    group = await running.until(lambda group: not group.devices[0].connected)
    assert [holder.job_id for holder in group.holders] == ["job-a"]
    await running.release(lease)
    answer = await running.acquire("r2", "job-b", wait_s=0.1)
    assert "n1" in answer.waiting.reason
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS):
        assert (await running.acquire("r2", "job-b")).lease.job_id == "job-b"


async def test_a_hand_off_that_was_under_way_when_the_link_broke_goes_on_after_the_next_hello(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS, obeys=False).connect()
    await running.release(await running.lease("r1", "job-a"))
    waiting = asyncio.create_task(running.acquire("r2", "job-b"))
    await node.commands.get()
    await node.cut()  # it obeyed, but the result was lost
    parts = (part("job-a", "g", "d1", state=PARKED), part("job-b", "g", "d1", state=RUNNING))
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=parts):
        assert (await waiting).lease.job_id == "job-b"


async def test_a_second_stream_of_a_node_replaces_the_first_which_is_told_so(running: Running) -> None:
    first = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}).connect()
    async with ScriptedNode(open_channel(running.address), "n1", {"g": ("d1",)}, parts=TWO_JOBS):
        error = await ended(first)
        assert isinstance(error, Unavailable)
        assert "a newer stream of node n1 has taken over" in str(error)
        group = await running.group()
        assert group.devices[0].connected
        assert len(group.members) == 2
    await first.cut()


async def test_what_a_stream_says_after_a_newer_one_took_over_is_not_heard_any_more(running: Running) -> None:
    serving = running.server._serving
    first = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}).connect()
    old = serving.links.find("n1")
    assert old
    parts = [part("job-a", "g", "d1", state=RUNNING)]

    async def what_was_on_its_way() -> AsyncIterator[pb.AgentMessage]:
        yield pb.AgentMessage(report=pb.Report(parts=parts))
        yield pb.AgentMessage(result=pb.Result(command_id=1, epoch=1, parts=parts))
        yield pb.AgentMessage(groups=pb.NodeGroups())

    async with ScriptedNode(open_channel(running.address), "n1", {"g": ("d1",)}):
        link = agent_link.AgentLink(serving.engine, serving.links, serving.discovery, Gate(None))
        await link._read(old, what_was_on_its_way())
        group = await running.group()
        assert (len(group.members), len(group.devices)) == (0, 1)
    await first.cut()


async def test_another_node_with_the_same_device_is_refused_while_the_first_is_connected(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await ScriptedNode(running.channel, "n2", {"g": ("d1",)}).connect()
        error = error_of(caught.value)
        assert isinstance(error, InvalidRequest)
        assert "hello.devices: d1 is a device of node n1" in error.message


async def test_an_epoch_that_a_node_has_seen_is_outdone_for_all_nodes_and_for_ever(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS) as old:
        async with ScriptedNode(running.channel, "n2", {"h": ("d2",)}, epoch=41, token=900) as new:
            assert (old.welcome.epoch, new.welcome.epoch) == (1, 42)
            await running.release(await running.lease("r1", "job-a"))
            lease = await running.lease("r2", "job-b")
            assert (await old.commands.get()).epoch == 42
            assert lease.fencing_token > 900
        await running.stop()
        await running.start()
        assert running.server.epoch == 43
        await old.cut()


async def test_a_former_leader_does_not_outdo_the_epoch_of_its_successor(short_dir: Path, settings: Settings) -> None:
    store = SqliteStore.open(short_dir / "store")
    serving = Serving(settings, store, store.records, in_office=lambda: False)
    await serving.listen([Listener(f"unix://{short_dir}/o.sock")], Gate(None))
    async with open_channel(f"unix://{short_dir}/o.sock") as channel:
        with pytest.raises(grpc.aio.AioRpcError, match="leads no longer"):
            await ScriptedNode(channel, "n1", {"g": ("d1",)}, epoch=41).connect()
    assert store.epoch == 1
    await serving.stop()
    store.close()


async def test_a_result_of_an_older_orchestrators_command_is_ignored(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS, epoch=6, obeys=False) as node:
        await running.release(await running.lease("r1", "job-a"))
        waiting = asyncio.create_task(running.acquire("r2", "job-b", wait_s=5))
        command = await node.commands.get()
        with caplog.at_level(logging.INFO):
            stale = pb.Result(command_id=command.command_id, epoch=3)
            await node.say(pb.AgentMessage(result=stale))
            await node.answer(command)
            assert (await waiting).lease.job_id == "job-b"
        assert "result of epoch 3 ignored node=n1" in caplog.text


async def test_a_node_that_refuses_a_stale_epoch_is_made_to_dial_in_again_and_then_obeys(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS, obeys=False).connect()
    await running.release(await running.lease("r1", "job-a"))
    waiting = asyncio.create_task(running.acquire("r2", "job-b"))
    command = await node.commands.get()
    refusal = types_pb2.Fault(reason="StaleEpoch", message="epoch 1 is older than 7")
    result = pb.Result(command_id=command.command_id, epoch=1, refused=refusal)
    await node.say(pb.AgentMessage(result=result))
    assert "dial in again" in str(await ended(node))
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=TWO_JOBS, epoch=7) as again:
        assert again.welcome.epoch == 8
        assert (await waiting).lease.job_id == "job-b"


async def test_a_stream_without_a_hello_is_ended(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent_link, "_HELLO_TIMEOUT_S", 0.1)
    connect: Any = running.channel.stream_stream("/timeslice.v1alpha1.AgentLink/Connect")
    call = connect()
    async with asyncio.timeout(5):
        assert "no hello came within 0.1 s" in await call.details()
        assert await call.code() is grpc.StatusCode.UNAVAILABLE


async def test_nodes_are_told_when_the_orchestrator_stops(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}).connect()
    await running.stop()
    assert isinstance(await ended(node), Stopping)


def hello(**changes: object) -> pb.Hello:
    device = types_pb2.Device(device_id="d1")
    return pb.Hello(**{"node": "n1", "devices": [device], "groups": [pb.NodeGroup(group_id="g")], **changes})  # type: ignore[arg-type]


def in_state(state: int) -> types_pb2.Part:
    made = part("job-a", "g", "d1")
    made.state = state  # type: ignore[assignment]  # what a newer node may send
    return made


BAD_HELLOS = {
    "no node name": (hello(node=""), "hello.node is empty"),
    "a long node name": (hello(node="n" * 10_000), "hello.node has 10000 characters"),
    "a device without id": (hello(devices=[types_pb2.Device()]), "hello.devices[0] '' is not a device id"),
    "a device twice": (hello(devices=[types_pb2.Device(device_id="d1")] * 2), "hello.devices[1] 'd1' is named twice"),
    "a bad group name": (
        hello(groups=[pb.NodeGroup(group_id="a b")]),
        "hello.groups[0].group_id 'a b' is not a name",
    ),
    "a group twice": (
        hello(groups=[pb.NodeGroup(group_id="g")] * 2),
        "hello.groups[1].group_id 'g' is named twice",
    ),
    "a group of unknown devices": (
        hello(groups=[pb.NodeGroup(group_id="g", device_ids=["d1", "d9"])]),
        "hello.groups[0].device_ids[1] 'd9' is not among the node's devices",
    ),
    "a device in two groups": (
        hello(groups=[pb.NodeGroup(group_id=name, device_ids=["d1"]) for name in ("g", "h")]),
        "hello.groups[1].device_ids: d1 is in group g already",
    ),
    "a part without a job": (
        hello(parts=[part("", "g", "d1")]),
        "hello.parts[0].member.job_id is empty",
    ),
    "a part without a group": (
        hello(parts=[part("job-a", "", "d1")]),
        "hello.parts[0].member.group_id is empty",
    ),
    "a part on unknown devices": (
        hello(parts=[part("job-a", "g", "d1"), part("job-b", "g", "d9")]),
        "hello.parts[1].device_ids[0] 'd9' is not among the node's devices",
    ),
    "a part in no state": (hello(parts=[in_state(0)]), "hello.parts[0].state 0 is not a state of a part"),
    "a part in an unknown state": (hello(parts=[in_state(17)]), "hello.parts[0].state 17 is not a state of a part"),
    "a member twice": (hello(parts=[part("job-a", "g", "d1")] * 2), "hello.parts names a member twice"),
}


async def stream_error(running: Running, *messages: pb.AgentMessage) -> InvalidRequest:
    """The error that a stream with these messages ends with."""
    call = running.channel.stream_stream(
        "/timeslice.v1alpha1.AgentLink/Connect", pb.AgentMessage.SerializeToString, pb.OrchestratorMessage.FromString
    )()
    for message in messages:
        await call.write(message)
    async with asyncio.timeout(5):
        with contextlib.suppress(grpc.aio.AioRpcError):  # its status comes behind the answers
            while await call.read() is not grpc.aio.EOF:
                pass
        code, trailers = await call.code(), await call.trailing_metadata()
        details = await call.details()
    error = error_of(grpc.aio.AioRpcError(code, await call.initial_metadata(), trailers, details))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert isinstance(error, InvalidRequest)
    return error


@pytest.mark.parametrize(("message", "problem"), BAD_HELLOS.values(), ids=BAD_HELLOS.keys())
async def test_a_bad_hello_is_refused_with_the_field_named(running: Running, message: pb.Hello, problem: str) -> None:
    error = await stream_error(running, pb.AgentMessage(hello=message))
    assert problem in error.message
    groups = await running.call(running.stub.ListGroups(orchestrator_pb2.ListGroupsRequest()))
    assert len(groups.groups) == 0


AFTER_HELLO = {
    "a second hello": (pb.AgentMessage(hello=hello()), "hello: it came twice"),
    "an empty message": (pb.AgentMessage(), "message: neither a report, nor a result, nor groups"),
    "a report on unknown devices": (
        pb.AgentMessage(report=pb.Report(parts=[part("job-a", "g", "d9")])),
        "report.parts[0].device_ids[0] 'd9'",
    ),
    "an end of a member without a name": (
        pb.AgentMessage(report=pb.Report(ended=[types_pb2.MemberKey()])),
        "report.ended[0].job_id is empty",
    ),
    "a group of a device that its hello did not name": (
        pb.AgentMessage(groups=pb.NodeGroups(groups=[pb.NodeGroup(group_id="g", device_ids=["d9"])])),
        "groups[0].device_ids[0] 'd9' is not among the node's devices",
    ),
    "a result with a bad part": (
        pb.AgentMessage(result=pb.Result(parts=[part("job a", "g", "d1")])),
        "result.parts[0].member.job_id 'job a' is not a name",
    ),
}


@pytest.mark.parametrize(("message", "problem"), AFTER_HELLO.values(), ids=AFTER_HELLO.keys())
async def test_a_bad_message_ends_the_stream_with_the_field_named(
    running: Running, message: pb.AgentMessage, problem: str
) -> None:
    error = await stream_error(running, pb.AgentMessage(hello=hello()), message)
    assert problem in error.message


async def test_a_stream_that_starts_with_something_else_is_refused(running: Running) -> None:
    error = await stream_error(running, pb.AgentMessage(report=pb.Report()))
    assert "hello: it must be the first message" in error.message


async def test_bytes_that_are_no_message_end_the_stream_as_the_nodes_fault(running: Running) -> None:
    connect: Any = running.channel.stream_stream("/timeslice.v1alpha1.AgentLink/Connect")
    call = connect()
    await call.write(b"\xff\xff\xff")
    async with asyncio.timeout(5):
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not a message of this method" in await call.details()
