"""What theory allows: cycle time and duty cycle of jobs that take turns on one device, first come first served.

Each job repeats: restore R, use the device T_on, snapshot S, work elsewhere T_off. It occupies the device for
G = R + T_on + S per turn. A cycle is at least the longest that any one job needs for its own turn, and at least the sum
of all turns:

    T_c = max(max_i(own_i), sum_i(G_i))        duty = sum_i(T_on,i) / T_c

`own_i` depends on what a job waits for:

    blocking     G_i + T_off,i                      its own snapshot
    overlapped   R_i + T_on,i + max(S_i, T_off,i)   none: the off-phase begins at the yield, beside the snapshot
    lazy         S_j + R_i + T_on,i + T_off,i       the snapshot of the job before it, begun when it asks
    prefetched   T_on,i + max(S_i + R_i, T_off,i)   neither: its restore starts before it asks

With unequal jobs the form holds for strict round-robin, that is when each T_off,i is at most the others' sum of G, or
when all own_i are equal. One job alone is never parked: its cycle is T_on + T_off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Policy: TypeAlias = Literal["blocking", "overlapped", "lazy", "prefetched"]


@dataclass(frozen=True)
class Phases:
    """Mean lengths of one job's phases, in seconds."""

    on_s: float
    off_s: float
    snapshot_s: float = 0.0
    restore_s: float = 0.0

    @property
    def alone_s(self) -> float:
        """Its cycle when it has the device to itself."""
        return self.on_s + self.off_s

    @property
    def off_share(self) -> float:
        """Share of that cycle in which it needs no device, 0 to 1."""
        return self.off_s / self.alone_s

    @property
    def occupied_s(self) -> float:
        """How long a turn keeps the device from others (G)."""
        return self.restore_s + self.on_s + self.snapshot_s


_OWN: dict[Policy, Callable[[Phases, Phases], float]] = {
    "blocking": lambda job, _: job.occupied_s + job.off_s,
    "overlapped": lambda job, _: job.restore_s + job.on_s + max(job.snapshot_s, job.off_s),
    "lazy": lambda job, before: before.snapshot_s + job.restore_s + job.on_s + job.off_s,
    "prefetched": lambda job, _: job.on_s + max(job.snapshot_s + job.restore_s, job.off_s),
}


def cycle_s(jobs: Sequence[Phases], policy: Policy = "overlapped") -> float:
    """Time in which every job makes one step (seconds)."""
    if len(jobs) == 1:
        return jobs[0].alone_s
    own = (_OWN[policy](job, jobs[i - 1]) for i, job in enumerate(jobs))
    return max(*own, sum(job.occupied_s for job in jobs))


def duty_cycle(jobs: Sequence[Phases], policy: Policy = "overlapped") -> float:
    """Share of time in which some job uses the device, 0 to 1."""
    return sum(job.on_s for job in jobs) / cycle_s(jobs, policy)
