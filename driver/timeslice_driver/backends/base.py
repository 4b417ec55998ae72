"""What every snapshot backend promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from timeslice_driver.faults import Fault
from timeslice_driver.processes import ProcessId


class TargetState(Enum):
    """Where the accelerator state of one process is. The first four are CUDA's (CUprocessState)."""

    RUNNING = "running"
    LOCKED = "locked"
    CHECKPOINTED = "checkpointed"
    FAILED = "failed"  # the driver calls it unrecoverable
    NOTHING = "nothing"  # it has put nothing on a device
    GONE = "gone"  # the process has ended
    UNKNOWN = "unknown"  # no answer within the time limit: stuck


@dataclass(frozen=True)
class Target:
    """A process to act on.

    Attributes:
        process: its identity; only the backend knows more of it.
        size: device memory that it has or had (bytes), from which time limits follow.
        job_file: key of the file by which it belongs to a launch, see `JobFiles`; such processes go one at a time.
    """

    process: ProcessId
    size: int = 0
    job_file: str = ""


@dataclass(frozen=True)
class Outcome:
    """How one step went.

    Attributes:
        states: of every target, after the step.
        faults: of the targets that did not reach the step's goal.
        spoilt: those among them that no further call can save, whatever the driver calls their state.
        given_up: those among them whose call did not return. It may go on in them, and end later.
        seconds: how long the whole step took.
    """

    states: Mapping[ProcessId, TargetState] = field(default_factory=dict)
    faults: Mapping[ProcessId, Fault] = field(default_factory=dict)
    spoilt: frozenset[ProcessId] = frozenset()
    given_up: frozenset[ProcessId] = frozenset()
    seconds: float = 0.0


@dataclass(frozen=True)
class Capabilities:
    """What a backend can do, and what it leaves as it was.

    Attributes:
        name: of the backend.
        unavailable: why it cannot be used; None when it can.
        transparent: jobs need not know of it.
        preserves: what is bit-identical after a restore.
        host_bytes_per_device_byte: host memory that a parked process takes, per byte of device memory.
        detail: driver and library versions, for people.
    """

    name: str
    unavailable: Fault | None = None
    transparent: bool = True
    preserves: frozenset[str] = frozenset({"contents", "addresses", "graphs"})
    host_bytes_per_device_byte: float = 1.0
    detail: str = ""


@dataclass(frozen=True)
class Estimate:
    """What a park and a restore of some targets will take (bytes, seconds)."""

    host_bytes: int
    park_s: float
    restore_s: float


class Backend(Protocol):
    """Takes accelerator state of processes away and brings it back, in steps.

    Steps act on all targets at once and never raise for a target's sake: what did not work is in the outcome. They are
    safe
    to repeat: a target that is already where the step leads counts as brought there. Each is bounded in time.
    """

    async def open(self) -> None:
        """Gets ready. Never raises: `capabilities` tells what is wrong."""

    async def close(self) -> None:
        """Ends what it has started. The state of targets stays as it is."""

    def capabilities(self) -> Capabilities:
        """What it can do here."""

    def estimate(self, targets: Sequence[Target]) -> Estimate:
        """What a park and a restore of these would take, by rule of thumb."""

    async def probe(self, processes: Sequence[ProcessId]) -> Mapping[ProcessId, TargetState]:
        """Which of the processes have accelerator state; NOTHING for those that have not."""

    async def states(self, processes: Sequence[ProcessId]) -> Mapping[ProcessId, TargetState]:
        """The truth about each process, as the driver tells it."""

    async def lock(self, targets: Sequence[Target], *, timeout_s: float) -> Outcome:
        """RUNNING to LOCKED, all in parallel. On a fault the others stay locked: the caller decides."""

    async def checkpoint(self, targets: Sequence[Target]) -> Outcome:
        """LOCKED to CHECKPOINTED."""

    async def restore(self, targets: Sequence[Target]) -> Outcome:
        """CHECKPOINTED to LOCKED. The caller has checked that the devices have room."""

    async def unlock(self, targets: Sequence[Target]) -> Outcome:
        """LOCKED to RUNNING, all in parallel."""
