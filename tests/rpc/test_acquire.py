"""Acquire and yield over the wire: order, bounded waits, repetitions, and clients that leave."""

from __future__ import annotations

import asyncio
import uuid

import grpc
import pytest
from running_orchestrator import Running, open_channel, stub_of
from scripted_node import ScriptedNode
from timeslice import AsyncOrchestratorClient
from timeslice_api.errors import GroupNotFound, NotHolder, RequestEnded, Unavailable
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.core.model import Settings


async def test_the_first_to_ask_gets_the_devices_and_the_next_one_its_place(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        assert lease.job_id == "job-a"
        assert list(lease.group_ids) == ["g"]
        assert lease.ttl_s > 0
        answer = await running.acquire("r2", "job-b", wait_s=0)
        assert answer.waiting.position == 1
        assert answer.waiting.holder_job_id == "job-a"
        assert "job-a" in answer.waiting.reason


async def test_a_yield_serves_the_next_one_while_its_call_waits(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b"))
        await running.until(lambda group: len(group.waiters) == 1)
        assert (await running.release(lease)).waiting == 1
        answer = await waiting
        assert answer.lease.fencing_token > lease.fencing_token
        assert answer.waited_s > 0


async def test_waiters_are_served_in_the_order_of_their_arrival(running: Running) -> None:
    served: list[str] = []

    async def turn(job: str) -> None:
        lease = await running.lease(f"r-{job}", job, wait_s=8)
        served.append(job)
        await running.release(lease)

    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        first = await running.lease("r0", "job-x")
        turns = []
        for job in ("d", "b", "a", "c"):
            turns.append(asyncio.create_task(turn(job)))
            await running.until(lambda group: len(group.waiters) == len(turns))
        await running.release(first)
        await asyncio.gather(*turns)
    assert served == ["d", "b", "a", "c"]


async def test_a_wait_that_is_over_keeps_the_place_for_the_next_call(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        answer = await running.acquire("r2", "job-b", wait_s=0.05)
        assert answer.waiting.position == 1
        assert answer.waited_s >= 0.05
        assert (await running.acquire("r3", "job-c", wait_s=0)).waiting.position == 2
        again = asyncio.create_task(running.acquire("r2", "job-b"))
        await asyncio.sleep(0.05)
        await running.release(lease)
        assert (await again).lease.job_id == "job-b"


async def test_a_repeated_acquire_gets_the_same_lease(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        first, second = await running.lease("r1", "job-a"), await running.lease("r1", "job-a")
        assert first == second
        (holder,) = (await running.group()).holders
        assert holder.leases == 1


async def test_calls_with_one_request_id_at_the_same_time_share_one_place_and_one_lease(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        first = await running.lease("r1", "job-a")
        calls = [asyncio.create_task(running.acquire("r2", "job-b")) for _ in range(3)]
        await running.until(lambda group: len(group.waiters) == 1)
        calls[0].cancel()  # as a client does that gave up on a call and has repeated it
        await asyncio.sleep(0.1)
        await running.release(first)
        answers = await asyncio.gather(*calls[1:])
        assert answers[0].lease == answers[1].lease
        assert len((await running.group()).waiters) == 0


async def test_a_request_id_that_was_used_up_gets_no_second_lease(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.release(await running.lease("r1", "job-a"))
        with pytest.raises(RequestEnded):
            await running.acquire("r1", "job-a")


@pytest.mark.parametrize("settings", [Settings(waiter_grace_s=0.3)], ids=["short grace"])
async def test_a_waiter_whose_connection_breaks_leaves_no_ghost(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        other = open_channel(running.address)
        ghost = stub_of(other).Acquire(pb.AcquireRequest(request_id="r2", job_id="job-b", group_id="g", wait_s=30))
        waiting = asyncio.ensure_future(ghost)
        await running.until(lambda group: len(group.waiters) == 1)
        await other.close()
        await asyncio.gather(waiting, return_exceptions=True)
        third = asyncio.create_task(running.acquire("r3", "job-c"))
        await running.until(lambda group: len(group.waiters) == 2)
        await running.release(lease)
        # the place of the one that is gone is not served, and does not hold up the one behind it
        assert (await third).lease.job_id == "job-c"


async def test_a_cancelled_acquire_can_be_withdrawn_and_is_gone(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b"))
        await running.until(lambda group: len(group.waiters) == 1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        request = pb.WithdrawRequest(request_id="r2", job_id="job-b")
        assert (await running.call(running.stub.Withdraw(request))).withdrawn
        assert not (await running.call(running.stub.Withdraw(request))).withdrawn
        assert len((await running.group()).waiters) == 0


async def test_withdrawing_ends_the_call_that_waits(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b"))
        await running.until(lambda group: len(group.waiters) == 1)
        await running.call(running.stub.Withdraw(pb.WithdrawRequest(request_id="r2", job_id="job-b")))
        with pytest.raises(RequestEnded):
            await waiting


async def test_withdrawing_a_request_that_was_granted_gives_its_lease_back(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.lease("r1", "job-a")
        await running.call(running.stub.Withdraw(pb.WithdrawRequest(request_id="r1", job_id="job-a")))
        assert (await running.lease("r2", "job-b")).job_id == "job-b"


async def test_several_groups_are_granted_together(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g1": ("d1",), "g2": ("d2",)}):
        one = await running.lease("r1", "job-a", "g2")
        both = pb.AcquireRequest(request_id="r2", job_id="job-b", group_ids=["g1", "g2", "g1"], wait_s=0)
        assert (await running.call(running.stub.Acquire(both))).HasField("waiting")
        await running.release(one)
        both.wait_s = 5
        assert list((await running.call(running.stub.Acquire(both))).lease.group_ids) == ["g1", "g2"]


async def test_a_second_yield_is_told_that_the_first_one_did_it(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        assert not (await running.release(lease)).already_yielded
        assert (await running.release(lease)).already_yielded


async def test_a_yield_of_another_jobs_lease_is_refused(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        lease.job_id = "job-b"
        with pytest.raises(NotHolder):
            await running.release(lease)


async def test_an_unknown_group_is_an_error_that_names_it(running: Running) -> None:
    with pytest.raises(GroupNotFound, match="nowhere"):
        await running.group("nowhere")
    with pytest.raises(Unavailable, match=r"nowhere.* is not known yet") as caught:
        await running.acquire("r1", "job-a", "nowhere")
    assert caught.value.retryable  # a node may tell of it


async def test_a_job_that_asks_before_its_node_has_told_of_the_group_waits_for_it(running: Running) -> None:
    async with AsyncOrchestratorClient(running.address, job_id="job-a") as client:
        asked = asyncio.create_task(client.acquire("g", timeout=8))
        await asyncio.sleep(0.3)
        async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
            await asked
            assert [holder.job_id for holder in (await running.group()).holders] == ["job-a"]


async def test_keep_alive_tells_which_leases_are_lost_and_which_are_wanted(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        await running.acquire("r2", "job-b", wait_s=0)
        request = pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id, "never-was"])
        answer = await running.call(running.stub.KeepAlive(request))
        assert list(answer.lost_lease_ids) == ["never-was"]
        assert list(answer.wanted_lease_ids) == [lease.lease_id]


@pytest.mark.timeout(60)
async def test_a_burst_of_five_thousand_acquires_loses_none(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r0", "job-x")
        requests = [
            pb.AcquireRequest(request_id=str(uuid.uuid4()), job_id=f"job-{n}", group_id="g", wait_s=30)
            for n in range(5_000)
        ]
        calls = [running.stub.Acquire(request) for request in requests]
        await running.until(lambda group: len(group.waiters) == 5_000, within_s=30)
        assert not any(call.done() for call in calls)
        await running.stop()
        codes = [await call.code() for call in calls]
        assert codes == [grpc.StatusCode.UNAVAILABLE] * 5_000
    assert lease.lease_id
