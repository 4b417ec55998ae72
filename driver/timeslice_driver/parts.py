"""The table of parts: a member's share on this node, and where the accelerator state of each of its processes is.

Pure: values in, values out. A part's state follows from its processes; the table below is the only place that says
    which steps
lead from where to where. The steps are CUDA's own (README of github.com/NVIDIA/cuda-checkpoint).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from timeslice_driver.backends.base import Target, TargetState
from timeslice_driver.faults import Fault
from timeslice_driver.processes import ProcessId


class PartState(Enum):
    """Where a part's accelerator state is; see `PartState` in types.proto."""

    EMPTY = "empty"
    RUNNING = "running"
    LOCKED = "locked"
    PARKED = "parked"
    FAILED = "failed"


class Step(Enum):
    """What a backend does to a process. A command does all steps of one kind before the next kind, in this order."""

    LOCK = "lock"
    CHECKPOINT = "checkpoint"
    RESTORE = "restore"
    UNLOCK = "unlock"


# (where a process is, where its part shall be) -> the steps between; a pair that is missing needs none.
STEPS: Final[Mapping[tuple[TargetState, PartState], tuple[Step, ...]]] = {
    (TargetState.RUNNING, PartState.LOCKED): (Step.LOCK,),
    (TargetState.RUNNING, PartState.PARKED): (Step.LOCK, Step.CHECKPOINT),
    (TargetState.LOCKED, PartState.PARKED): (Step.CHECKPOINT,),
    (TargetState.CHECKPOINTED, PartState.LOCKED): (Step.RESTORE,),
    (TargetState.CHECKPOINTED, PartState.RUNNING): (Step.RESTORE, Step.UNLOCK),
    (TargetState.LOCKED, PartState.RUNNING): (Step.UNLOCK,),
}
GOALS: Final[Mapping[Step, TargetState]] = {
    Step.LOCK: TargetState.LOCKED,
    Step.CHECKPOINT: TargetState.CHECKPOINTED,
    Step.RESTORE: TargetState.LOCKED,
    Step.UNLOCK: TargetState.RUNNING,
}
REVERSE: Final[Mapping[Step, Step]] = {
    Step.LOCK: Step.UNLOCK,
    Step.CHECKPOINT: Step.RESTORE,
    Step.RESTORE: Step.CHECKPOINT,
    Step.UNLOCK: Step.LOCK,
}
_PART_STATES: Final[Mapping[TargetState, PartState]] = {
    TargetState.RUNNING: PartState.RUNNING,
    TargetState.LOCKED: PartState.LOCKED,
    TargetState.CHECKPOINTED: PartState.PARKED,
}
# A process in one of these has no accelerator state, and its part nothing to do with it.
BARE: Final = frozenset({TargetState.NOTHING, TargetState.GONE})


@dataclass(frozen=True, order=True)
class Member:
    """A job in a group."""

    job_id: str
    group_id: str

    @property
    def about(self) -> dict[str, str]:
        """Fields of a line of the log about it (`extra`)."""
        return {"job_id": self.job_id, "group_id": self.group_id}

    def __str__(self) -> str:
        return f"job {self.job_id} in group {self.group_id}"


@dataclass(frozen=True)
class Timings:
    """Seconds that the steps of a command took; 0 for steps that did not run."""

    lock_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0
    unlock_s: float = 0.0

    def plus(self, step: Step, seconds: float) -> Timings:
        """With the seconds of one more step."""
        name = f"{step.value}_s"
        return replace(self, **{name: getattr(self, name) + seconds})

    def __str__(self) -> str:
        steps = ((step.value, getattr(self, f"{step.value}_s")) for step in Step)
        return ", ".join(f"{step} {seconds:.3f} s" for step, seconds in steps if seconds) or "no step was needed"


@dataclass(frozen=True)
class Held:
    """A process with accelerator state.

    Attributes:
        sizes: device memory by device id (bytes), in use now or, once checkpointed, saved; -1 where it is not known.
        job_file: see `Target`.
        spoilt: no driver call can bring it back.
        unsure: a call on it was given up. A copy goes on without its caller, so the state may change by itself.
    """

    process: ProcessId
    state: TargetState
    sizes: Mapping[str, int] = field(default_factory=dict)
    job_file: str = ""
    spoilt: bool = False
    unsure: bool = False

    @property
    def size(self) -> int:
        """Bytes on all devices; what is not known counts as none."""
        return sum(max(0, size) for size in self.sizes.values())

    @property
    def resident(self) -> bool:
        """Something of it may be on the devices."""
        return self.state is not TargetState.CHECKPOINTED

    @property
    def target(self) -> Target:
        """As the backend wants it."""
        return Target(self.process, self.size, self.job_file)


@dataclass(frozen=True)
class Part:
    """A member's share on this node.

    Attributes:
        device_ids: devices of this node that it covers.
        roots: registered processes; they and their descendants belong to it.
        pods: UIDs of the pods that its claims are prepared for; their processes belong to it.
        family: living processes that are known to belong to it.
        held: those of them with accelerator state.
        room: free memory by device id (bytes) just after the last checkpoint: what it came from, it fits into.
        fault: why the last operation failed; None when it did not.
        timings: of the last command.
    """

    member: Member
    device_ids: tuple[str, ...]
    roots: frozenset[ProcessId] = frozenset()
    pods: frozenset[str] = frozenset()
    family: frozenset[ProcessId] = frozenset()
    held: Mapping[ProcessId, Held] = field(default_factory=dict)
    room: Mapping[str, int] = field(default_factory=dict)
    fault: Fault | None = None
    timings: Timings = Timings()

    @property
    def state(self) -> PartState:
        """From its processes. A mixture counts as LOCKED: it is at neither end, and any command brings it to one."""
        states = {held.state for held in self.held.values()}
        if not states:
            return PartState.EMPTY
        if any(held.spoilt for held in self.held.values()) or states & {TargetState.FAILED, TargetState.UNKNOWN}:
            return PartState.FAILED
        return _PART_STATES[states.pop()] if len(states) == 1 else PartState.LOCKED

    @property
    def resident(self) -> bool:
        """Something of it may be on the devices."""
        return any(held.resident for held in self.held.values())

    @property
    def unsure(self) -> bool:
        """The state of one of its processes may change by itself."""
        return any(held.unsure for held in self.held.values())

    @property
    def size(self) -> int:
        """Device memory saved, or in use while resident (bytes)."""
        return sum(held.size for held in self.held.values())

    def steps(self, target: PartState) -> dict[ProcessId, tuple[Step, ...]]:
        """What each of its processes needs to get there; processes that need nothing, or cannot go, are left out."""
        pairs = (
            (process, STEPS.get((held.state, target), ())) for process, held in self.held.items() if not held.spoilt
        )
        return {process: steps for process, steps in pairs if steps}

    def with_states(self, states: Mapping[ProcessId, TargetState]) -> Part:
        """After the backend has told where its processes are. Those that have no accelerator state are let go."""
        held = {
            process: replace(entry, state=states.get(process, entry.state))
            for process, entry in self.held.items()
            if states.get(process) not in BARE
        }
        family = self.family - {process for process, state in states.items() if state is TargetState.GONE}
        return replace(self, held=held, family=family)

    def doubt(self, given_up: Collection[ProcessId], *, arrived: Collection[ProcessId] = ()) -> Part:
        """Marks processes as unsure, until a later call has brought them where it should."""
        unsure = {p for p, entry in self.held.items() if entry.unsure or p in given_up}.difference(arrived)
        return replace(self, held={p: replace(entry, unsure=p in unsure) for p, entry in self.held.items()})

    def spoil(self, processes: frozenset[ProcessId]) -> Part:
        """Marks processes that no call can bring back."""
        return replace(
            self, held={p: replace(entry, spoilt=entry.spoilt or p in processes) for p, entry in self.held.items()}
        )
