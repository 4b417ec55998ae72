"""How the orchestrator's figures grow with the number of nodes, groups, jobs and waiting requests.

At each size: two nodes a group, eleven jobs a group with a part on each node. All jobs ask at once, so that one holds
and ten wait. Then they take turns: first as fast as they can, then at a given number of hand-offs a second for the
whole system, at which times are measured (at full speed each would be that of the queue before the processor).
"""

from __future__ import annotations

import asyncio
import math
import time
from dataclasses import dataclass
from pathlib import Path

from timeslice_bench.case import Effort, Measurement, p50, ranked
from timeslice_bench.empty_call import empty_call_times
from timeslice_bench.layout import Group, Layout, same_groups
from timeslice_bench.orchestrator_client import Caller, connect
from timeslice_bench.platform import Platform, platform
from timeslice_bench.process_stats import usage
from timeslice_bench.scale_plot import Series, plot
from timeslice_bench.turns import Turns, during, taking, until_queued

NODES_OF_A_GROUP = 2
JOBS_OF_A_GROUP = 11
PACE_PER_S = 20.0
PROBE = Group("probe", sharers=1)
PROBE_EVERY_S = 0.02


@dataclass(frozen=True)
class Found:
    """One size's figures: seconds for times, bytes for memory."""

    nodes: int
    groups: int
    members: int
    waiting: int
    empty_s: float
    rate: float
    handoff_cpu_s: float
    handoffs_s: list[float]
    acquires_s: list[float]
    rss: int

    def __str__(self) -> str:
        return (
            f"{self.nodes} nodes: {self.rate:.0f}/s, {self.handoff_cpu_s * 1e3:.1f} ms of processor time each; at "
            f"{PACE_PER_S:.0f}/s a hand-off p50 {p50(self.handoffs_s) * 1e3:.1f} p99 "
            f"{ranked(self.handoffs_s, 0.99) * 1e3:.0f} ms, acquire p50 {p50(self.acquires_s) * 1e3:.1f} ms; "
            f"{self.waiting} waiting, {self.rss / 1e6:.0f} MB"
        )


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`scale_…`: the values at the largest size, and how the price of a hand-off grows from the smallest."""
    sizes = []
    for nodes in effort.scale_nodes:
        (folder := directory / str(nodes)).mkdir()
        sizes.append(await _measure_size(nodes, effort, folder, profile if nodes == effort.scale_nodes[-1] else None))
    if effort.plot is not None:
        _plot(sizes, effort.plot)
    small, large = sizes[0], sizes[-1]
    detail = "; ".join(map(str, sizes))
    p99, empty = ranked(large.acquires_s, 0.99), large.empty_s
    what = f"{large.nodes} nodes, {large.groups} groups, {large.members} members"
    return [
        Measurement("scale_handoffs_per_s", large.rate, 1 / large.rate / empty if large.rate else None, detail),
        Measurement("scale_acquire_p99_ms", p99 * 1e3, p99 / empty, f"n={len(large.acquires_s)}; {what}"),
        Measurement("scale_rss_mb", large.rss / 1e6, detail=f"{what}, {large.waiting} waiting"),
        Measurement(
            "scale_handoff_growth",
            large.handoff_cpu_s / small.handoff_cpu_s,
            detail=f"from {small.handoff_cpu_s * 1e3:.2f} ms with {small.nodes} nodes "
            f"to {large.handoff_cpu_s * 1e3:.2f} ms with {large.nodes}",
        ),
    ]


async def _measure_size(nodes: int, effort: Effort, directory: Path, profile: Path | None) -> Found:
    count = nodes // NODES_OF_A_GROUP
    groups = same_groups(count, Group("group", NODES_OF_A_GROUP, sharers=JOBS_OF_A_GROUP))
    turns = Turns(groups, hold_s=math.inf)
    async with platform(Layout((*groups, PROBE)), directory, profile) as running:
        empty = p50(await empty_call_times(running.empty_address, effort.empty_calls)) / 1000
        async with taking(turns, running.address) as jobs:
            waiting = await until_queued(groups, running.address, jobs)
            rate, cpu_s = await _at_full_speed(turns, running, jobs, effort)
            acquires = await _at_a_pace(turns, running, jobs, count / PACE_PER_S, effort.paced_s)
            rss = usage(running.orchestrator_pid).rss
    members = count * JOBS_OF_A_GROUP
    return Found(nodes, count, members, waiting, empty, rate, cpu_s, list(turns.hand_offs_s), acquires, rss)


async def _at_full_speed(
    turns: Turns, running: Platform, jobs: asyncio.Task[None], effort: Effort
) -> tuple[float, float]:
    """Hand-offs a second, and the orchestrator's processor time for each (seconds)."""
    turns.hold(0.0)
    await during(jobs, effort.throughput_s / 5)
    turns.forget()
    cpu_s, start = usage(running.orchestrator_pid).cpu_s, time.monotonic()
    await during(jobs, effort.throughput_s)
    count, wall_s = len(turns.hand_offs_s), time.monotonic() - start
    return count / wall_s, (usage(running.orchestrator_pid).cpu_s - cpu_s) / max(count, 1)


async def _at_a_pace(
    turns: Turns, running: Platform, jobs: asyncio.Task[None], hold_s: float, duration_s: float
) -> list[float]:
    """Times of acquires that nobody contends, meanwhile (seconds)."""
    turns.hold(hold_s)
    await during(jobs, hold_s / 4)  # until the crowd of the full speed is served
    turns.forget()
    found: list[float] = []
    channel = connect(running.address)
    try:
        probe, until = Caller(channel, PROBE.group_id, PROBE.jobs[0]), time.monotonic() + duration_s
        while time.monotonic() < until:
            start = time.monotonic()
            lease = await probe.acquire()
            found.append(time.monotonic() - start)
            await probe.yield_(lease)
            await during(jobs, PROBE_EVERY_S)
    finally:
        await channel.close()
    return found


def _plot(sizes: list[Found], path: Path) -> None:
    series = [
        Series("hand-offs per second, all groups at full speed", [size.rate for size in sizes]),
        Series(
            f"ms of a hand-off, p99, at {PACE_PER_S:.0f} a second", [ranked(s.handoffs_s, 0.99) * 1e3 for s in sizes]
        ),
        Series("ms of an acquire that nobody contends, p99", [ranked(s.acquires_s, 0.99) * 1e3 for s in sizes]),
        Series("MB of memory", [size.rss / 1e6 for size in sizes]),
    ]
    plot("One orchestrator on two cores", [f"{size.nodes} nodes" for size in sizes], series, path=path)
