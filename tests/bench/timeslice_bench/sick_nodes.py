"""Whether nodes that are slow, or hear and never answer, delay anybody but their own groups.

The same healthy groups hand over at the same pace twice: beside as many groups that are healthy too, and beside as many
of which half have nodes that take seconds for each answer, and half nodes that never answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from timeslice_bench.case import Effort, Measurement, p50, ranked
from timeslice_bench.layout import Group, Layout, same_groups
from timeslice_bench.platform import platform
from timeslice_bench.turns import Turns, during, taking

SLOW_S = 3.0
HOLD_S = 1.0


@dataclass(frozen=True)
class Found:
    """Hand-offs of the healthy groups (seconds), and how many the others had."""

    healthy_s: Sequence[float]
    others: int


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`sick_nodes_delay`: the healthy groups' hand-offs beside sick ones ÷ beside healthy ones (medians)."""
    count = effort.sick_groups
    slow, dead = Group("slow", answer_s=SLOW_S), Group("dead", answer_s=None)
    before = await _beside(same_groups(count, Group("other")), effort, directory / "healthy")
    after = await _beside(
        same_groups(count // 2, slow) + same_groups(count - count // 2, dead), effort, directory / "sick"
    )
    detail = (
        f"{_times(before)} beside {count} healthy groups with {before.others} hand-offs, "
        f"{_times(after)} beside {count} sick ones with {after.others}"
    )
    return [Measurement("sick_nodes_delay", p50(after.healthy_s) / p50(before.healthy_s), detail=detail)]


async def _beside(others: tuple[Group, ...], effort: Effort, directory: Path) -> Found:
    directory.mkdir()
    groups = same_groups(effort.sick_groups, Group("healthy"))
    healthy, beside = Turns(groups, HOLD_S), Turns(others, HOLD_S)
    async with (
        platform(Layout(groups + others), directory) as running,
        taking(beside, running.address) as other_jobs,
        taking(healthy, running.address) as jobs,
    ):
        await during(jobs, HOLD_S * 2)
        healthy.forget()
        beside.forget()
        await during(jobs, effort.paced_s)
        await during(other_jobs, 0.0)
        return Found(list(healthy.hand_offs_s), len(beside.hand_offs_s))


def _times(found: Found) -> str:
    times = found.healthy_s
    return f"p50 {p50(times) * 1e3:.1f} p99 {ranked(times, 0.99) * 1e3:.1f} ms (n={len(times)})"
