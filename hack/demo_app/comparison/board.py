"""Where every job stands right now, from what it told and what the orchestrator says of the group."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from timeslice_api.v1alpha1 import orchestrator_pb2, types_pb2

from comparison.jobs import Told
from comparison.plan import JobSpec, Run

_DOING = {
    "ready": "at the start line",
    "waiting": "waits for the device",
    "holding": "holds: starts",
    "held": "has yielded",
    "reward_begins": "reward, on the CPU",
    "done": "done",
    "out_of_memory": "CUDA_ERROR_OUT_OF_MEMORY",
}
_MIB = 1 << 20


@dataclass
class Line:
    """One job on the board."""

    spec: JobSpec
    step: int = 0
    doing: str = "at the start line"
    curve: list[float] = field(default_factory=list)

    @property
    def holding(self) -> bool:
        """Whether it has the device."""
        return self.doing.startswith("holds")

    def take(self, told: Told) -> None:
        """Follows an event."""
        event = told.event
        kind = event["event"]
        self.step = event.get("step", self.step)
        if kind == "phase":
            self.doing = f"holds: {event['phase']}"
        elif kind == "reward":
            self.curve.append(event["mean"])
        else:
            self.doing = _DOING.get(kind, self.doing)


@dataclass
class Board:
    """The run that is on now."""

    run: Run = field(default_factory=Run)
    since: float = field(default_factory=time.monotonic)
    lines: dict[str, Line] = field(default_factory=dict)
    group: orchestrator_pb2.Group | None = None

    def begin(self, run: Run) -> None:
        """Clears the board for the next run."""
        self.run, self.since = run, time.monotonic()
        self.lines = {job.name: Line(job) for job in run.jobs}

    def take(self, told: Told) -> bool:
        """Follows an event; False when it is of another run."""
        if told.run != self.run.name or told.job not in self.lines:
            return False
        self.lines[told.job].take(told)
        return True

    @property
    def device(self) -> str:
        """Who has the device, and whose state waits in host memory, as the orchestrator sees it."""
        if self.group is None or not self.run.takes_turns:
            return "every job takes what it can get"
        if self.group.switching_to_job_id:
            holder = f"switching to {self.group.switching_to_job_id}"
        else:
            holder = "held by " + (" and ".join(holder.job_id for holder in self.group.holders) or "nobody")
        parked = [
            f"{member.job_id} parked ({sum(part.bytes for part in member.parts) / _MIB:.0f} MiB)"
            for member in self.group.members
            if any(part.state == types_pb2.PART_STATE_PARKED for part in member.parts)
        ]
        return ", ".join([holder, *parked, f"{self.group.handoffs} hand-offs so far"])
