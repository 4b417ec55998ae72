"""The cases: their names, units and goals, and what the nearest system measured at the same boundary."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Case:
    """One figure. `nearest`: the same boundary in the nearest system, on a 2-core machine; empty where it has none."""

    name: str
    what: str
    unit: str
    goal: float
    bound: Literal["max", "min"]
    nearest: str = ""

    def met(self, value: float) -> bool:
        """Whether the value reaches the goal."""
        return value <= self.goal if self.bound == "max" else value >= self.goal


CASES = {
    case.name: case
    for case in (
        Case("acquire_p50_ms", "acquire that nobody contends", "ms", 3, "max", "1,001 ms"),
        Case("handoff_1_p50_ms", "yield of A to grant of the waiting B, 1 node", "ms", 8, "max", "2,630 ms"),
        Case("handoff_8_p50_ms", "the same, members on 8 nodes", "ms", 15, "max", "16,700 ms"),
        Case("handoff_64_p50_ms", "the same, members on 64 nodes", "ms", 80, "max", "128,800 ms"),
        Case("handoffs_per_s", "100 groups x 2 jobs as fast as they can", "1/s", 300, "min", "0.5/s"),
        Case("groups_served", "of these 100, each job served by hand-off", "groups", 100, "min", "31"),
        Case("parked_lost", "of 5,000 acquires waiting at once, lost", "requests", 0, "max"),
        Case("parked_rss_mb", "orchestrator's memory meanwhile", "MB", 350, "max"),
        Case("park_vs_memcpy", "snapshot throughput / memcpy", "ratio", 0.6, "min"),
        Case("restore_vs_memcpy", "restore throughput / memcpy", "ratio", 0.6, "min"),
        Case("cycles_growth_mb", "acquire-yield cycles: growth of both sides", "MB", 8, "max", "grows"),
    )
}

CLUSTER_CASES = {
    case.name: case
    for case in (
        Case("prepare_p50_ms", "one claim, a call on the plugin's socket on a real node", "ms", 50, "max"),
        Case("prepare_p99_ms", "the same, 99th percentile", "ms", 250, "max"),
        Case("prepare_64_s", "64 claims at once, until the last is prepared", "s", 1, "max"),
        Case("unprepare_p50_ms", "one claim, a call on the plugin's socket on a real node", "ms", 50, "max"),
        Case("unprepare_p99_ms", "the same, 99th percentile", "ms", 250, "max"),
        Case("unprepare_64_s", "64 claims at once, until the last is unprepared", "s", 1, "max"),
        Case("republished_s", "from a new group to the node's complete new slices", "s", 1, "max"),
        Case("pod_start_ratio", "pod with a claim until it runs / the same pod without one", "ratio", 2, "max"),
        Case("pod_start_new_job_ratio", "the same, of a job that its group has not seen before", "ratio", 3, "max"),
        Case("kubelet_prepare_mean_ms", "prepare, by the kubelet's own figures", "ms", 50, "max"),
        Case("kubelet_unprepare_mean_ms", "unprepare, by the kubelet's own figures", "ms", 50, "max"),
        Case("node_rss_mb", "memory of the node's process at rest", "MB", 120, "max"),
        Case("node_cpu_percent", "its processor time at rest, of one core", "%", 1, "max"),
        Case("orchestrator_rss_mb", "memory with 500 groups and 2,000 members at rest", "MB", 250, "max"),
        Case("orchestrator_cpu_percent", "its processor time meanwhile, of one core", "%", 5, "max"),
    )
}
"""Those that need the test cluster: `hack/bench cluster`."""

TAKEOVER_CASES = {
    case.name: case
    for case in (
        Case("takeover_after_kill_ms", "leader killed, until the one that stood by has granted", "ms", 3000, "max"),
        Case("takeover_clean_ms", "leader stopped, until the one that stood by has granted", "ms", 3000, "max"),
        Case("takeover_lease_after_kill_ms", "end of a killed leader's Lease, until another grants", "ms", 3000, "max"),
        Case("takeover_lease_clean_ms", "leader by a Lease stopped, until another has granted", "ms", 3000, "max"),
    )
}
"""Those of two orchestrators, of which one leads: `hack/bench takeover`."""

SCALE_CASES = {
    case.name: case
    for case in (
        Case("scale_handoffs_per_s", "1,000 nodes, 500 groups x 11 jobs as fast as they can", "1/s", 100, "min"),
        Case("scale_acquire_p99_ms", "uncontended acquire beside them, at 20 hand-offs a second", "ms", 50, "max"),
        Case("scale_rss_mb", "orchestrator's memory meanwhile", "MB", 500, "max"),
        Case("scale_handoff_growth", "processor time of a hand-off, 1,000 nodes / 10", "ratio", 1.5, "max"),
        Case("sick_nodes_delay", "hand-offs of healthy groups, beside sick ones / healthy ones", "ratio", 1.2, "max"),
        Case("soak_growth_mb", "memory of the orchestrator, end / after a quarter of a long run", "MB", 8, "max"),
    )
}
"""Those of many nodes and of long runs: `hack/bench scale`."""

ALL_CASES = CASES | CLUSTER_CASES | TAKEOVER_CASES | SCALE_CASES


@dataclass(frozen=True)
class Effort:
    """How much is measured."""

    empty_calls: int = 600
    acquires: int = 600
    handoffs: dict[int, int] = field(default_factory=lambda: {1: 300, 8: 150, 64: 60})  # by number of nodes
    throughput_s: float = 10.0
    parked: int = 5_000
    parked_granted: int = 5_000  # of them; the others are withdrawn
    snapshot_bytes: int = 1 << 30
    snapshots: int = 7
    takeovers: int = 10  # of each kind
    cycles: int = 10_000
    warm_up_cycles: int = 2_000
    warm_up_s: float = 31.0  # at least: for so long, a lease's time to live, the orchestrator keeps its timer
    limit_s: float = 240.0  # of one scenario
    cluster_limit_s: float = 1200.0  # of one on the cluster
    prepare_rounds: int = 4
    new_groups: int = 15
    pods: int = 12
    settle_s: float = 15.0
    rest_s: float = 120.0
    scale_nodes: tuple[int, ...] = (10, 30, 100, 300, 1000)
    paced_s: float = 20.0
    sick_groups: int = 50  # and as many healthy ones
    soak_s: float = 120.0
    plot: Path | None = None  # of how the figures grow


QUICK = Effort(
    empty_calls=200,
    acquires=200,
    handoffs={1: 60, 8: 30, 64: 12},
    throughput_s=5.0,
    parked_granted=500,
    snapshot_bytes=512 << 20,
    snapshots=4,
    takeovers=2,
    cycles=2_000,
    warm_up_cycles=500,
    warm_up_s=0.0,
    limit_s=40.0,
    cluster_limit_s=600.0,
    prepare_rounds=2,
    new_groups=5,
    pods=4,
    settle_s=10.0,
    rest_s=30.0,
    scale_nodes=(10, 100),
    paced_s=5.0,
    soak_s=30.0,
)


@dataclass(frozen=True)
class Measurement:
    """A case's value.

    Attributes:
        empty_calls: the time that it stands for, as a multiple of an empty unary call of the same run; None for what
            is no time.
        sound: False when a condition that belongs to the case failed; then its goal is not met.
        detail: for people.
    """

    case: str
    value: float
    empty_calls: float | None = None
    detail: str = ""
    sound: bool = True


@dataclass(frozen=True)
class Failure:
    """A case that could not be measured."""

    case: str
    reason: str


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def ranked(samples: Sequence[float], share: float) -> float:
    """The sample that so large a share of all does not exceed: 0.99 for the 99th percentile."""
    return sorted(samples)[min(len(samples) - 1, int(len(samples) * share))]


def spread(samples_ms: Sequence[float]) -> str:
    """For people: number of samples, their minimum, 90th percentile and maximum."""
    p90 = ranked(samples_ms, 0.9)
    return f"n={len(samples_ms)} min {min(samples_ms):.2f} p90 {p90:.2f} max {max(samples_ms):.2f} ms"
