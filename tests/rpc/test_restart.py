"""A stop tells everybody and forgets nothing; a start goes on where the last one was."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest
from running_orchestrator import Running
from scripted_node import PARKED, RUNNING, ScriptedNode, part
from timeslice_api.errors import Stopping
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.server import STORE_NAME

PARTS = (part("job-a", "g", "d1", state=RUNNING), part("job-b", "g", "d1", state=PARKED))


async def test_waiters_and_watchers_are_told_of_a_stop_within_its_time(running: Running) -> None:
    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}).connect()
    await running.lease("r1", "job-a")
    waiting = asyncio.create_task(running.acquire("r2", "job-b", wait_s=30))
    await running.until(lambda group: len(group.waiters) == 1)
    watch = aiter(running.stub.WatchGroup(pb.WatchGroupRequest(group_id="g")))
    await anext(watch)
    watching = asyncio.create_task(running.call(_last(watch)))
    started = time.monotonic()
    await running.stop()
    assert time.monotonic() - started < 5
    for task in (waiting, watching):
        with pytest.raises(Stopping) as caught:
            await task
        assert caught.value.retryable
    await node.cut()


async def _last(watch: AsyncIterator[pb.Group]) -> None:
    async for _ in watch:
        pass


async def test_the_holder_keeps_its_lease_and_each_waiter_its_place(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        for number, job in enumerate(("job-c", "job-b"), start=1):
            assert (await running.acquire(f"r-{job}", job, wait_s=0)).waiting.position == number
    await running.stop()
    await running.start()
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, epoch=1):
        request = pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id])
        assert not (await running.call(running.stub.KeepAlive(request))).lost_lease_ids
        assert await running.lease("r1", "job-a") == lease
        # asked in the other order, they have the places that they had
        assert (await running.acquire("r-job-b", "job-b", wait_s=0)).waiting.position == 2
        assert (await running.acquire("r-job-c", "job-c", wait_s=0)).waiting.position == 1
        await running.release(lease)
        served = await running.lease("r-job-c", "job-c")
        assert served.fencing_token > lease.fencing_token


async def test_a_waiter_that_repeats_its_call_is_served_by_the_successor(running: Running) -> None:
    async def insistent() -> pb.AcquireResponse:
        while True:
            try:
                return await running.acquire("r2", "job-b", wait_s=10)
            except Stopping:
                await asyncio.sleep(0.05)

    node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=PARTS).connect()
    lease = await running.lease("r1", "job-a")
    waiting = asyncio.create_task(insistent())
    await running.until(lambda group: len(group.waiters) == 1)
    await running.stop()
    await node.cut()
    stub = running.stub
    await running.start()
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=PARTS, epoch=1):
        await running.release(lease)
        assert (await waiting).lease.job_id == "job-b"
    assert stub is running.stub


async def test_groups_that_nodes_declared_are_known_before_the_nodes_are_back(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        pass
    await running.stop()
    await running.start()
    answer = await running.acquire("r1", "job-a", wait_s=0)
    assert "n1" in answer.waiting.reason


async def test_a_drain_outlives_a_restart(running: Running) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        await running.call(running.stub.Drain(pb.DrainRequest(group_id="g")))
    await running.stop()
    await running.start()
    assert (await running.group()).draining


async def test_epochs_and_tokens_only_rise(running: Running) -> None:
    epochs, tokens = [], []
    for number in range(3):
        epochs.append(running.server.epoch)
        async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}) as node:
            assert node.welcome.epoch == running.server.epoch
            lease = await running.lease(f"r{number}", "job-a")
            tokens.append(lease.fencing_token)
            await running.release(lease)
        await running.stop()
        await running.start()
    assert epochs == sorted(set(epochs))
    assert tokens == sorted(set(tokens))


async def test_tokens_rise_although_the_state_with_grants_that_moved_nothing_was_lost(running: Running) -> None:
    tokens, epoch = [], 0
    for _ in range(3):
        node = await ScriptedNode(running.channel, "n1", {"g": ("d1",)}, epoch=epoch).connect()
        for number in range(2):
            lease = await running.lease(f"r{number}", "job-a")  # no command tells the node of its token
            tokens.append(lease.fencing_token)
            await running.release(lease)
        epoch = node.welcome.epoch
        await running.stop()
        await node.cut()
        for path in running.config.state_dir.glob(f"{STORE_NAME}*"):
            path.unlink()
        await running.start()
    assert tokens == sorted(set(tokens))


async def test_a_corrupt_state_is_kept_aside_and_what_matters_comes_back_from_the_nodes(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
    await running.stop()
    store = running.config.state_dir / STORE_NAME
    store.write_bytes(b"\0" * 100 + store.read_bytes()[100:])
    with caplog.at_level(logging.ERROR):
        await running.start()
    aside = store.with_name(f"{STORE_NAME}.corrupt-1")
    assert aside.exists()
    assert str(aside) in caplog.text
    async with ScriptedNode(
        running.channel, "n1", {"g": ("d1",)}, parts=PARTS, epoch=9, token=lease.fencing_token
    ) as node:
        assert node.welcome.epoch == 10
        assert (await running.lease("r9", "job-b")).fencing_token > lease.fencing_token
        group = await running.group()
        assert {member.job_id: member.parts[0].state for member in group.members} == {"job-a": PARKED, "job-b": RUNNING}
