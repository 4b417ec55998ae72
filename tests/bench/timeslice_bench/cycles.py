"""Leaks: what many acquire-yield cycles through the product's client leave behind in both processes."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from timeslice_bench.case import Effort, Measurement
from timeslice_bench.child import Child, child, module
from timeslice_bench.layout import one_group_per
from timeslice_bench.platform import platform
from timeslice_bench.process_stats import Usage, usage

THREADS = 2
SETTLE_S = 0.5  # for connections and tasks of the last cycles to end


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`cycles_growth_mb`: growth of resident memory of orchestrator and client together.

    The budget is the goal for memory, nearly all of it for the ends of the last 16,384 requests, which the orchestrator
    remembers so that late repetitions are told the truth; nothing for descriptors; and two threads, since the pool in
    gRPC's core breathes.
    """
    layout = one_group_per([1])
    group = layout.groups[0]
    async with platform(layout, directory, profile) as running:
        job = module("cycles_child", running.address, group.jobs[0], group.group_id)
        async with child("client", job, directory) as client:
            pids = running.orchestrator_pid, client.pid
            warm_up = await _warm_up(client, effort)
            await asyncio.sleep(SETTLE_S)
            before = [usage(pid) for pid in pids]
            await client.ask(str(effort.cycles), effort.limit_s)
            await asyncio.sleep(SETTLE_S)
            after = [usage(pid) for pid in pids]
    return [_growth(before, after, f"{effort.cycles} cycles after {warm_up}")]


async def _warm_up(client: Child, effort: Effort) -> int:
    """Returns how many cycles it took."""
    start, cycles = time.monotonic(), 0
    while cycles == 0 or time.monotonic() - start < effort.warm_up_s:
        await client.ask(str(effort.warm_up_cycles), effort.limit_s)
        cycles += effort.warm_up_cycles
    return cycles


def _growth(before: list[Usage], after: list[Usage], what: str) -> Measurement:
    memory = [(b.rss, a.rss) for b, a in zip(before, after, strict=True)]
    threads = sum(a.threads - b.threads for b, a in zip(before, after, strict=True))
    descriptors = sum(a.descriptors - b.descriptors for b, a in zip(before, after, strict=True))
    server, client = ((a - b) / 1e6 for b, a in memory)
    detail = (
        f"{what}: orchestrator {server:+.2f} MB, client {client:+.2f} MB, "
        f"threads {threads:+d}, descriptors {descriptors:+d} (budget +{THREADS} and +0)"
    )
    sound = threads <= THREADS and descriptors <= 0
    return Measurement("cycles_growth_mb", server + client, detail=detail, sound=sound)
