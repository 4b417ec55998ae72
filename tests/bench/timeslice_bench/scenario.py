"""Scenarios: each starts its processes once and measures the cases that belong together."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from timeslice_bench import cycles, handoffs, parked, snapshots, throughput
from timeslice_bench.case import Effort, Failure, Measurement

Measure = Callable[[Effort, Path, set[str], Path | None], Awaitable[list[Measurement]]]


@dataclass(frozen=True)
class Scenario:
    """`measure(effort, empty directory, wanted cases, file for the orchestrator's profile)` gives the cases' values."""

    name: str
    cases: tuple[str, ...]
    measure: Measure


SCENARIOS = (
    Scenario(
        "latency",
        ("acquire_p50_ms", "handoff_1_p50_ms", "handoff_8_p50_ms", "handoff_64_p50_ms"),
        handoffs.measure,
    ),
    Scenario("throughput", ("handoffs_per_s", "groups_served"), throughput.measure),
    Scenario("waiting", ("parked_lost", "parked_rss_mb"), parked.measure),
    Scenario("snapshot", ("park_vs_memcpy", "restore_vs_memcpy"), snapshots.measure),
    Scenario("cycles", ("cycles_growth_mb",), cycles.measure),
)


async def run(
    scenario: Scenario, effort: Effort, wanted: Iterable[str], profiles: Path | None
) -> list[Measurement | Failure]:
    """Measures the wanted ones of the scenario's cases. A scenario that breaks fails its cases, not the others."""
    chosen = [case for case in scenario.cases if case in set(wanted)]
    profile = profiles / f"{scenario.name}.pstats" if profiles else None
    with tempfile.TemporaryDirectory(prefix="timeslice-bench-") as directory:
        try:
            async with asyncio.timeout(effort.limit_s):
                measured = await scenario.measure(effort, Path(directory), set(chosen), profile)
        except TimeoutError:
            return [Failure(case, f"not finished in {effort.limit_s:g} s") for case in chosen]
        except Exception as error:  # noqa: BLE001 - the outermost loop: other scenarios go on
            return [Failure(case, f"{type(error).__name__}: {error}") for case in chosen]
    return [found for found in measured if found.case in chosen]
