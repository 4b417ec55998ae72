from __future__ import annotations

import asyncio
import time

import pytest
from fake_orchestrator import FakeOrchestrator
from patience import eventually
from timeslice import AcquireTimeout, AsyncOrchestratorClient, NotHolder, OrchestratorClient


async def test_the_async_forms_hold_and_give_back(
    async_client: AsyncOrchestratorClient, fake: FakeOrchestrator
) -> None:
    lease = await async_client.acquire("g")
    assert lease.held
    assert fake.holders == ["job-a"]
    await async_client.yield_("g")
    assert fake.holders == []
    async with await async_client.acquire("g"), async_client.on_accelerators("g"):
        assert fake.holders == ["job-a"]
    assert fake.holders == []
    with pytest.raises(NotHolder):
        await async_client.yield_("g")


async def test_the_loop_runs_on_while_a_task_waits(
    async_client: AsyncOrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with other.on_accelerators():
        waiting = asyncio.create_task(async_client.acquire())
        ticks = 0
        while fake.waiters != ["job-a"]:
            await asyncio.sleep(0.005)
            ticks += 1
        assert ticks
        assert not waiting.done()
    lease = await waiting
    await lease.yield_()


async def test_a_cancelled_acquire_leaves_no_ghost(
    async_client: AsyncOrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with other.on_accelerators():
        waiting = asyncio.create_task(async_client.acquire())
        while fake.waiters != ["job-a"]:
            await asyncio.sleep(0.005)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert fake.waiters == []
    assert fake.holders == []
    assert len(fake.methods("Withdraw")) == 1


async def test_a_second_cancellation_does_not_stop_the_withdrawal(
    async_client: AsyncOrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    async def slowly() -> None:
        await asyncio.sleep(0.3)

    with other.on_accelerators():
        waiting = asyncio.create_task(async_client.acquire())
        while fake.waiters != ["job-a"]:
            await asyncio.sleep(0.005)
        fake.faults["Withdraw"].append(slowly)
        waiting.cancel()
        await asyncio.sleep(0.05)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 0.2)
        await asyncio.to_thread(eventually, lambda: len(fake.methods("Withdraw")) == 2)
    assert fake.waiters == fake.holders == []


async def test_a_task_cancelled_while_it_gives_back_gives_back_all_the_same(
    async_client: AsyncOrchestratorClient, fake: FakeOrchestrator
) -> None:
    async def slowly() -> None:
        await asyncio.sleep(0.3)

    fake.faults["Yield"].append(slowly)

    async def phase() -> None:
        async with async_client.on_accelerators("g"):
            pass

    task = asyncio.create_task(phase())
    while not fake.methods("Yield"):
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(eventually, lambda: fake.holders == [])


async def test_wait_for_bounds_an_acquire_too(
    async_client: AsyncOrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with other.on_accelerators():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(async_client.acquire(), 0.1)
        with pytest.raises(AcquireTimeout):
            await async_client.acquire(timeout=0.1)
        assert fake.waiters == []


async def test_tasks_of_one_client_hold_together(async_client: AsyncOrchestratorClient, fake: FakeOrchestrator) -> None:
    together = asyncio.Barrier(3)

    @async_client.on_accelerators
    async def phase() -> None:
        await together.wait()

    await asyncio.wait_for(asyncio.gather(phase(), phase(), phase()), 5)
    assert fake.holders == []


def test_one_client_works_in_several_event_loops(fake: FakeOrchestrator) -> None:
    client = AsyncOrchestratorClient(fake.address, job_id="job-a")

    async def phase() -> list[str]:
        async with client.on_accelerators("g"):
            return fake.holders

    assert asyncio.run(phase()) == asyncio.run(phase()) == ["job-a"]
    client._session.end(time.monotonic() + 1)


async def test_the_client_closes_at_the_end_of_its_block(fake: FakeOrchestrator) -> None:
    async with AsyncOrchestratorClient(fake.address, job_id="job-a") as client:
        await client.acquire("g")
    assert fake.holders == []


async def test_the_loop_goes_on_while_the_client_closes(fake: FakeOrchestrator) -> None:
    client = AsyncOrchestratorClient(fake.address, job_id="job-a")
    await client.acquire("g")
    told = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def slow() -> None:
        loop.call_soon_threadsafe(told.set)
        await asyncio.sleep(0.3)

    fake.faults["Yield"].append(slow)
    closing = asyncio.create_task(client.aclose())
    await told.wait()
    assert not closing.done()
    await closing
    assert fake.holders == []
