"""Throughput: many groups whose two jobs hand over to each other as fast as they can, all at the same time."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from pathlib import Path

from timeslice_bench.case import Effort, Measurement, p50
from timeslice_bench.empty_call import empty_call_times
from timeslice_bench.layout import Group, many_groups
from timeslice_bench.orchestrator_client import Caller, connect
from timeslice_bench.platform import platform
from timeslice_bench.process_stats import usage

GROUPS = 100


class Tally:
    """Hand-offs by group and job: grants whose group was held by the other job before."""

    def __init__(self) -> None:
        self._last: dict[str, str] = {}
        self._handoffs: defaultdict[tuple[str, str], int] = defaultdict(int)

    def granted(self, group_id: str, job_id: str) -> None:
        """Counts a grant."""
        if self._last.setdefault(group_id, job_id) != job_id:
            self._handoffs[group_id, job_id] += 1
            self._last[group_id] = job_id

    @property
    def handoffs(self) -> int:
        """All of them."""
        return sum(self._handoffs.values())

    def served(self, groups: tuple[Group, ...]) -> int:
        """Groups in which each job was granted by at least one hand-off."""
        return sum(all(self._handoffs[group.group_id, job] for job in group.jobs) for group in groups)


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`handoffs_per_s` and `groups_served`."""
    layout = many_groups(GROUPS, members=True)
    tally = Tally()
    async with platform(layout, directory, profile) as running:
        empty = p50(await empty_call_times(running.empty_address, effort.empty_calls))
        cpu_s, start = usage(running.orchestrator_pid).cpu_s, time.monotonic()
        await _run(running.address, layout.groups, tally, effort.throughput_s)
        wall_s = time.monotonic() - start
        cpu_s = usage(running.orchestrator_pid).cpu_s - cpu_s
    rate = tally.handoffs / wall_s
    processor_ms = cpu_s / max(tally.handoffs, 1) * 1000
    detail = f"{tally.handoffs} in {wall_s:.1f} s; each costs the orchestrator {processor_ms:.2f} ms of processor time"
    return [
        Measurement("handoffs_per_s", rate, 1000 / rate / empty if rate else None, detail),
        Measurement("groups_served", tally.served(layout.groups)),
    ]


async def _run(address: str, groups: tuple[Group, ...], tally: Tally, duration_s: float) -> None:
    jobs = [(group.group_id, job) for group in groups for job in group.jobs]
    channels = [connect(address) for _ in jobs]
    turns = [
        asyncio.create_task(_take_turns(Caller(channel, *job), tally))
        for channel, job in zip(channels, jobs, strict=True)
    ]
    try:
        done, _ = await asyncio.wait(turns, timeout=duration_s, return_when=asyncio.FIRST_EXCEPTION)
        for turn in done:
            turn.result()
    finally:
        for turn in turns:
            turn.cancel()
        await asyncio.gather(*turns, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in channels))


async def _take_turns(caller: Caller, tally: Tally) -> None:
    while True:
        lease = await caller.acquire()
        tally.granted(caller.group_id, caller.job_id)
        await caller.yield_(lease)
