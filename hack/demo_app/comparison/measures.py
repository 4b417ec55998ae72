"""From what jobs told and what the orchestrator counted to figures. Times are CLOCK_MONOTONIC seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, TypeAlias

from comparison.closed_form import Phases

Event: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Span:
    """From when to when."""

    start: float
    end: float

    @property
    def length_s(self) -> float:
        """Its length, in seconds."""
        return self.end - self.start


@dataclass
class JobRecord:
    """One job in one run, filled by the events that it tells."""

    name: str
    task: str
    events: list[Event] = field(default_factory=list)

    def spans(self, begins: str, ends: str) -> list[Span]:
        """All times between two kinds of event."""
        found: list[Span] = []
        start: float | None = None
        for event in self.events:
            if event["event"] == begins:
                start = event["t"]
            elif event["event"] == ends and start is not None:
                found.append(Span(start, event["t"]))
                start = None
        return found

    @property
    def holds(self) -> list[Span]:
        """When it had the device, from grant to yield."""
        return self.spans("holding", "held")

    @property
    def waits(self) -> list[Span]:
        """From asking to grant."""
        return self.spans("waiting", "holding")

    @property
    def off_phases(self) -> list[Span]:
        """From the yield to the next request: the reward phase, and what the client needs to yield."""
        return self.spans("held", "waiting")

    @property
    def reward_curve(self) -> list[float]:
        """Mean reward of each step."""
        return [event["mean"] for event in self.events if event["event"] == "reward"]

    def last(self, kind: str) -> Event | None:
        """The last event of a kind."""
        return next((event for event in reversed(self.events) if event["event"] == kind), None)

    @property
    def ended(self) -> float:
        """When it was done."""
        return float(self.events[-1]["t"])

    def phases(self, snapshot_s: float = 0.0, restore_s: float = 0.0) -> Phases:
        """Mean lengths of its phases."""
        on_s, off_s = fmean(s.length_s for s in self.holds), fmean(s.length_s for s in self.off_phases)
        return Phases(on_s, off_s, snapshot_s, restore_s)


@dataclass(frozen=True)
class RunRecord:
    """Jobs that were started at the same moment."""

    started: float
    jobs: Mapping[str, JobRecord]

    @property
    def wall_s(self) -> float:
        """From the common start to the last job's end."""
        return max(job.ended for job in self.jobs.values()) - self.started

    @property
    def held_s(self) -> float:
        """Sum of all holds."""
        return sum(span.length_s for job in self.jobs.values() for span in job.holds)

    @property
    def duty_cycle(self) -> float:
        """Share of the wall time in which a job had the device."""
        return self.held_s / self.wall_s


@dataclass(frozen=True)
class Handoff:
    """What one hand-off took, in seconds; bytes that left the device and bytes that came back to it."""

    lock_s: float
    checkpoint_s: float
    restore_s: float
    unlock_s: float
    whole_s: float
    bytes_parked: int
    bytes_restored: int


@dataclass(frozen=True)
class Spread:
    """Of a list of seconds."""

    p50: float
    mean: float
    max: float


def spread(values: Sequence[float]) -> Spread:
    """Median, mean and maximum; zeros for an empty list."""
    if not values:
        return Spread(0.0, 0.0, 0.0)
    return Spread(sorted(values)[(len(values) - 1) // 2], fmean(values), max(values))


def rises(curve: Sequence[float], margin: float) -> bool:
    """Whether the mean of the last quarter is above the mean of the first quarter by more than the margin."""
    quarter = max(1, len(curve) // 4)
    return len(curve) >= 2 and fmean(curve[-quarter:]) > fmean(curve[:quarter]) + margin
