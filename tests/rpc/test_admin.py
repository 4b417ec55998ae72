"""What people do and see: watch, force release, drain, resume, reset."""

from __future__ import annotations

import asyncio

import pytest
from running_orchestrator import Running
from scripted_node import PARKED, RUNNING, ScriptedNode, part
from timeslice_api.errors import GroupNotFound, OperationFailed, Stopping, Unavailable
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import types_pb2

PARTS = (part("job-a", "g", "d1", state=RUNNING), part("job-b", "g", "d1", state=PARKED))


async def test_groups_are_listed_by_name(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"b": ("d2",), "a": ("d1",)}):
        answer = await running.call(running.stub.ListGroups(pb.ListGroupsRequest()))
        assert [group.group_id for group in answer.groups] == ["a", "b"]


async def test_a_group_shows_who_holds_and_who_waits_and_why(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=PARTS):
        lease = await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b"))
        group = await running.until(lambda group: len(group.waiters) == 1)
        (holder,), (waiter,) = group.holders, group.waiters
        assert (holder.job_id, holder.leases, holder.fencing_token) == ("job-a", 1, lease.fencing_token)
        assert (waiter.job_id, waiter.request_id, waiter.position, waiter.holder) == ("job-b", "r2", 1, "a test")
        assert "job-a" in group.blocked_reason
        assert group.members[1].parts[0].bytes == 1000
        await running.release(lease)
        await waiting


async def test_hand_offs_are_counted_with_what_they_moved(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=PARTS):
        await running.release(await running.lease("r1", "job-a"))
        await running.lease("r2", "job-b")
        group = await running.group()
        assert group.handoffs == 1
        assert group.totals.grants == 2
        assert (group.totals.bytes_parked, group.totals.bytes_restored) == (1000, 1000)
        assert group.totals.handoff_s > 0
        assert 0 < group.duty_cycle <= 1


async def test_a_watch_tells_the_state_now_and_after_each_change(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        watch = running.stub.WatchGroup(pb.WatchGroupRequest(group_id="g"))
        seen = aiter(watch)
        async with asyncio.timeout(5):
            assert len((await anext(seen)).holders) == 0
            lease = await running.lease("r1", "job-a")
            assert [holder.job_id for holder in (await anext(seen)).holders] == ["job-a"]
            await running.release(lease)
            while (await anext(seen)).holders:
                pass
        watch.cancel()


async def test_many_watchers_see_the_same_change(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        watching = [asyncio.create_task(running.until(lambda group: len(group.holders) == 1)) for _ in range(20)]
        await asyncio.sleep(0.1)
        await running.lease("r1", "job-a")
        await asyncio.gather(*watching)


async def test_a_watch_of_a_group_that_goes_away_ends_with_the_reason(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}).connect()
    watching = asyncio.create_task(running.call(_drain(running)))
    await asyncio.sleep(0.1)
    await node.cut()
    async with ScriptedNode(running.channel, "n1", {"other": ("d1",)}):
        with pytest.raises(GroupNotFound):
            await watching


async def _drain(running: Running) -> None:
    async for _ in running.stub.WatchGroup(pb.WatchGroupRequest(group_id="g")):
        pass


async def test_a_force_release_takes_the_lease_and_the_next_one_gets_a_higher_token(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=PARTS) as node:
        lease = await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b"))
        await running.until(lambda group: len(group.waiters) == 1)
        answer = await running.call(running.stub.ForceRelease(pb.ForceReleaseRequest(group_id="g")))
        assert list(answer.lease_ids) == [lease.lease_id]
        assert (await waiting).lease.fencing_token > lease.fencing_token
        assert node.parts["job-a", "g"].state == PARKED
        renewal = pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id])
        assert list((await running.call(running.stub.KeepAlive(renewal))).lost_lease_ids) == [lease.lease_id]


async def test_a_force_release_of_a_job_that_holds_nothing_takes_nothing(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.lease("r1", "job-a")
        request = pb.ForceReleaseRequest(group_id="g", job_id="job-b")
        assert list((await running.call(running.stub.ForceRelease(request))).lease_ids) == []
        assert len((await running.group()).holders) == 1


async def test_a_drained_group_grants_nothing_until_it_is_resumed(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.call(running.stub.Drain(pb.DrainRequest(group_id="g")))
        answer = await running.acquire("r1", "job-a", wait_s=0.05)
        assert "drain" in answer.waiting.reason
        waiting = asyncio.create_task(running.acquire("r1", "job-a"))
        await asyncio.sleep(0.05)
        await running.call(running.stub.Resume(pb.ResumeRequest(group_id="g")))
        assert (await waiting).lease.job_id == "job-a"


async def quarantined(running: Running, node: ScriptedNode) -> types_pb2.Part:
    """A part of job-a that failed; what the node is told of it from now on is as the test says."""
    await node.joins(part("job-a", "g", "d1", state=types_pb2.PART_STATE_FAILED))
    async with asyncio.timeout(5):
        while not [member for member in (await running.group()).members if member.quarantine_reason]:
            await asyncio.sleep(0.01)
    return node.parts["job-a", "g"]


async def test_a_reset_ends_a_quarantine_when_the_node_finds_the_state_sound(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}) as node:
        mine = await quarantined(running, node)
        with pytest.raises(OperationFailed, match="job-a stays in quarantine in g: failed on n1"):
            await running.call(running.stub.Reset(pb.ResetRequest(job_id="job-a")))
        mine.state = PARKED
        answer = await running.call(running.stub.Reset(pb.ResetRequest(job_id="job-a", group_id="g")))
        assert list(answer.group_ids) == ["g"]
        assert not list((await running.call(running.stub.Reset(pb.ResetRequest(job_id="job-a")))).group_ids)
        assert await running.lease("r1", "job-a")


async def test_a_reset_ends_within_a_time_when_a_node_does_not_answer(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timeslice_orchestrator.rpc.service._RESET_S", 0.1)
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, obeys=False) as node:
        await quarantined(running, node)
        with pytest.raises(Unavailable, match=r"a node has not told the state of job-a within 0\.1 s"):
            await running.call(running.stub.Reset(pb.ResetRequest(job_id="job-a")))
        await node.answer(await node.commands.get())  # too late: nobody waits for it
        assert (await running.group()).members[0].quarantine_reason


async def test_a_reset_that_is_waited_for_ends_with_the_orchestrator(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, obeys=False) as node:
        await quarantined(running, node)
        resetting = asyncio.create_task(running.call(running.stub.Reset(pb.ResetRequest(job_id="job-a"))))
        await node.commands.get()
        await running.stop()
        with pytest.raises(Stopping):
            await resetting


@pytest.mark.parametrize("method", ["Drain", "Resume", "ForceRelease"])
async def test_an_unknown_group_is_an_error(running: Running, method: str) -> None:
    request = getattr(pb, f"{method}Request")(group_id="nowhere")
    with pytest.raises(GroupNotFound, match="nowhere"):
        await running.call(getattr(running.stub, method)(request))
