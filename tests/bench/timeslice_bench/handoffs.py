"""Latency: an acquire that nobody contends, and hand-offs of members on 1, 8 and 64 nodes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from timeslice import AsyncOrchestratorClient
from timeslice_api.v1alpha1.types_pb2 import Lease

from timeslice_bench.case import Effort, Measurement, p50, spread
from timeslice_bench.empty_call import empty_call_times
from timeslice_bench.layout import Group, one_group_per
from timeslice_bench.orchestrator_client import Caller, connect
from timeslice_bench.platform import Platform, platform

PRODUCT_CLIENT_MAY_ADD_MS = 1.0
QUEUED_LIMIT_S = 10.0


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """The wanted ones of `acquire_p50_ms` and `handoff_*_p50_ms`."""
    sizes = [nodes for nodes in effort.handoffs if f"handoff_{nodes}_p50_ms" in wanted]
    layout = one_group_per(sizes or [1])
    found = []
    async with platform(layout, directory, profile) as running:
        empty = p50(await empty_call_times(running.empty_address, effort.empty_calls))
        if "acquire_p50_ms" in wanted:
            found.append(await _acquire(running, layout.groups[0], effort.acquires, empty))
        for nodes in sizes:
            group = next(group for group in layout.groups if group.nodes == nodes)
            times = await _handoffs(running, group, effort.handoffs[nodes])
            value = p50(times)
            found.append(Measurement(f"handoff_{nodes}_p50_ms", value, value / empty, spread(times)))
    return found


async def _acquire(running: Platform, group: Group, count: int, empty: float) -> Measurement:
    """Of the product's client; of the bare call where the client adds more than it may."""
    bare = await _bare_acquires(running, group, count)
    product = await _product_acquires(running, group, count)
    added = p50(product) - p50(bare)
    chosen = product if added < PRODUCT_CLIENT_MAY_ADD_MS else bare
    name = "the product's client" if chosen is product else "the bare call"
    detail = f"{name}; the client adds {added:.2f} ms to {p50(bare):.2f}; {spread(chosen)}; empty call {empty:.2f} ms"
    return Measurement("acquire_p50_ms", p50(chosen), p50(chosen) / empty, detail)


async def _bare_acquires(running: Platform, group: Group, count: int) -> list[float]:
    times = []
    async with connect(running.address) as channel:
        caller = Caller(channel, group.group_id, group.jobs[0])
        for _ in range(count):
            start = time.perf_counter()
            lease = await caller.acquire()
            times.append((time.perf_counter() - start) * 1000)
            await caller.yield_(lease)
    return times


async def _product_acquires(running: Platform, group: Group, count: int) -> list[float]:
    times = []
    async with AsyncOrchestratorClient(running.address, job_id=group.jobs[0]) as client:
        for _ in range(count):
            start = time.perf_counter()
            await client.acquire(group_id=group.group_id)
            times.append((time.perf_counter() - start) * 1000)
            await client.yield_(group_id=group.group_id)
    return times


async def _handoffs(running: Platform, group: Group, count: int) -> list[float]:
    """From the moment when the holder's yield is sent to the one when the waiting job's grant is received."""
    async with connect(running.address) as holder_channel, connect(running.address) as waiter_channel:
        holder, waiter = (
            Caller(channel, group.group_id, job)
            for channel, job in zip((holder_channel, waiter_channel), group.jobs, strict=True)
        )
        lease = await holder.acquire()
        times = []
        for _ in range(count + 2):  # the first of each direction warm up
            waiting = asyncio.create_task(waiter.acquire())
            times.append(await _handoff(holder, lease, waiting))
            lease = await waiting
            holder, waiter = waiter, holder
        await holder.yield_(lease)
    return times[2:]


async def _handoff(holder: Caller, lease: Lease, waiting: asyncio.Task[Lease]) -> float:
    async with asyncio.timeout(QUEUED_LIMIT_S):
        while await holder.waiters() == 0:
            assert not waiting.done(), "granted while another job holds the devices"
    start = time.perf_counter()
    yielding = asyncio.create_task(holder.yield_(lease))
    await waiting
    elapsed = (time.perf_counter() - start) * 1000
    await yielding
    return elapsed
