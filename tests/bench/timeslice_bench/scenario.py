"""Scenarios: each starts its processes once and measures the cases that belong together."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from timeslice_bench import (
    cluster_pods,
    cluster_prepare,
    cluster_rest,
    cycles,
    handoffs,
    parked,
    scale,
    sick_nodes,
    snapshots,
    soak,
    takeover,
    throughput,
)
from timeslice_bench.case import Effort, Failure, Measurement

Measure = Callable[[Effort, Path, set[str], Path | None], Awaitable[list[Measurement]]]


@dataclass(frozen=True)
class Scenario:
    """`measure(effort, empty directory, wanted cases, file for the orchestrator's profile)` gives the cases' values."""

    name: str
    cases: tuple[str, ...]
    measure: Measure
    on_cluster: bool = False
    limit_s: Callable[[Effort], float] = lambda effort: effort.limit_s


SCENARIOS = (
    Scenario(
        "latency",
        ("acquire_p50_ms", "handoff_1_p50_ms", "handoff_8_p50_ms", "handoff_64_p50_ms"),
        handoffs.measure,
    ),
    Scenario("throughput", ("handoffs_per_s", "groups_served"), throughput.measure),
    Scenario("waiting", ("parked_lost", "parked_rss_mb"), parked.measure),
    Scenario("snapshot", ("park_vs_memcpy", "restore_vs_memcpy"), snapshots.measure),
    Scenario(
        "takeover",
        ("takeover_after_kill_ms", "takeover_clean_ms", "takeover_lease_after_kill_ms", "takeover_lease_clean_ms"),
        takeover.measure,
        limit_s=lambda effort: effort.limit_s + 40 * effort.takeovers,
    ),
    Scenario("cycles", ("cycles_growth_mb",), cycles.measure),
    Scenario(
        "prepare",
        tuple(f"{step}_{what}" for step in cluster_prepare.STEPS for what in ("p50_ms", "p99_ms", "64_s")),
        cluster_prepare.measure,
        on_cluster=True,
    ),
    Scenario(
        "pods",
        (
            *("republished_s", "pod_start_ratio", "pod_start_new_job_ratio"),
            *("kubelet_prepare_mean_ms", "kubelet_unprepare_mean_ms"),
        ),
        cluster_pods.measure,
        on_cluster=True,
    ),
    Scenario("node", ("node_rss_mb", "node_cpu_percent"), cluster_rest.measure_node, on_cluster=True),
    Scenario(
        "orchestrator",
        ("orchestrator_rss_mb", "orchestrator_cpu_percent"),
        cluster_rest.measure_orchestrator,
        on_cluster=True,
    ),
    Scenario(
        "scale",
        ("scale_handoffs_per_s", "scale_acquire_p99_ms", "scale_rss_mb", "scale_handoff_growth"),
        scale.measure,
        limit_s=lambda effort: effort.limit_s * len(effort.scale_nodes),
    ),
    Scenario("sick nodes", ("sick_nodes_delay",), sick_nodes.measure),
    Scenario("soak", ("soak_growth_mb",), soak.measure, limit_s=lambda effort: effort.limit_s + effort.soak_s),
)


async def run(
    scenario: Scenario, effort: Effort, wanted: Iterable[str], profiles: Path | None
) -> list[Measurement | Failure]:
    """Measures the wanted ones of the scenario's cases. A scenario that breaks fails its cases, not the others."""
    chosen = [case for case in scenario.cases if case in set(wanted)]
    limit_s = effort.cluster_limit_s if scenario.on_cluster else scenario.limit_s(effort)
    profile = profiles / f"{scenario.name}.pstats" if profiles else None
    with tempfile.TemporaryDirectory(prefix="timeslice-bench-") as directory:
        try:
            async with asyncio.timeout(limit_s):
                measured = await scenario.measure(effort, Path(directory), set(chosen), profile)
        except TimeoutError:
            return [Failure(case, f"not finished in {limit_s:g} s") for case in chosen]
        except Exception as error:  # noqa: BLE001 - the outermost loop: other scenarios go on
            return [Failure(case, f"{type(error).__name__}: {error}") for case in chosen]
    return [found for found in measured if found.case in chosen]
