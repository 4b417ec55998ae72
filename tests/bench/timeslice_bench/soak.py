"""A long run: many groups that hand over all the time; memory, threads and descriptors must not grow."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from timeslice_bench.case import Effort, Measurement
from timeslice_bench.layout import Group, Layout, same_groups
from timeslice_bench.platform import platform
from timeslice_bench.process_stats import Usage, usage
from timeslice_bench.turns import Turns, during, taking

GROUPS = same_groups(40, Group("soak"))
HOLD_S = 0.2
THREADS = 2  # the pool in gRPC's core breathes
SETTLED_AT = 0.25  # of the run: the ends of requests that are remembered have their full number long before


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`soak_growth_mb`: the orchestrator's memory at the end, less that after a quarter of the time."""
    turns = Turns(GROUPS, HOLD_S)
    async with platform(Layout(GROUPS), directory, profile) as running, taking(turns, running.address) as jobs:
        watch = _Watch(running.orchestrator_pid, turns, jobs)
        await watch.highest(effort.soak_s * SETTLED_AT)
        before = usage(running.orchestrator_pid)
        highest = await watch.highest(effort.soak_s * (1 - SETTLED_AT))
        after = usage(running.orchestrator_pid)
    return [_growth(before, after, f"{len(turns.hand_offs_s):,} hand-offs in {effort.soak_s:.0f} s", highest)]


class _Watch:
    """Of the orchestrator's memory; says each minute on standard error how it is."""

    def __init__(self, pid: int, turns: Turns, jobs: asyncio.Task[None]) -> None:
        self._pid, self._turns, self._jobs = pid, turns, jobs
        self._clock = asyncio.get_running_loop().time
        self._start = self._clock()
        self._minutes = 0

    async def highest(self, duration_s: float) -> int:
        """The highest resident memory in that time (bytes)."""
        until, highest = self._clock() + duration_s, 0
        while (left := until - self._clock()) > 0:
            now = usage(self._pid).rss
            highest = max(highest, now)
            self._tell(now)
            await during(self._jobs, min(left, 1.0))
        return highest

    def _tell(self, rss: int) -> None:
        minutes = int((self._clock() - self._start) / 60)
        if minutes > self._minutes:
            self._minutes = minutes
            told = f"{minutes} min: {rss / 1e6:.1f} MB, {len(self._turns.hand_offs_s):,} hand-offs"
            print(f"\n  {told}", end=" ", file=sys.stderr, flush=True)


def _growth(before: Usage, after: Usage, what: str, highest: int) -> Measurement:
    threads, descriptors = after.threads - before.threads, after.descriptors - before.descriptors
    detail = (
        f"{what}: {before.rss / 1e6:.1f} to {after.rss / 1e6:.1f} MB, highest {highest / 1e6:.1f}; "
        f"threads {threads:+d}, descriptors {descriptors:+d} (budget +{THREADS} and +0)"
    )
    sound = threads <= THREADS and descriptors <= 0
    return Measurement("soak_growth_mb", (after.rss - before.rss) / 1e6, detail=detail, sound=sound)
