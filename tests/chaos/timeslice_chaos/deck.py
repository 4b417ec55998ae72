"""All faults there are, as data, and the order in which a seed deals them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from timeslice_chaos.armory import Arm
from timeslice_chaos.points import JOB, NODE, ORCHESTRATOR


class AnyFault(Protocol):
    """One fault, as the report names it."""

    @property
    def kind(self) -> str:
        """What is done."""

    @property
    def where(self) -> str:
        """To whom, and when."""


_F = TypeVar("_F", bound=AnyFault)


@dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        kind: what is done, for the report: kill, stop, delay, full, twice, late, clock, link, gpu, memory, lost or
            newcomer.
        role: to whom: orchestrator, node, helper, holder, waiter, parked, mover (whose call of the GPU it is), job,
            link or gpu.
        point: where in the code, or in which call of the GPU; empty: at a random moment.
        arm: for a fault at a named point.
        gpu: for a fault of the GPU, the fields of its script.
        mode: of a link.
        seconds: how long it lasts.
        during: within that call of the GPU, which is made slow for it, or a job's hold, which is made long; empty: not
            only then.
    """

    kind: str
    role: str
    point: str = ""
    arm: Arm | None = None
    gpu: Mapping[str, Any] = field(default_factory=dict)
    mode: str = ""
    seconds: float = 0.0
    during: str = ""

    @property
    def where(self) -> str:
        """For the report."""
        side = "" if self.arm is None else "after " if self.arm.after else "before "
        how = " ".join(name for name in (self.mode, *self.gpu) if name not in ("call", "nth", "after"))
        within = f"in {self.during}" if self.during else ""
        return " ".join(filter(None, [self.role, f"{side}{self.point}", within, how]))


HOLD = "hold"
_STOP_S, _LONG_STOP_S = 0.6, 9.0  # the second outlasts a lease and its grace
_TOO_LONG_S = 5.0  # for a call of the GPU
_DELAY_S = 0.4
_FULL_S = 1.5


def _at_points(role: str, names: Iterator[str]) -> Iterator[Fault]:
    for name in names:
        for after in (False, True):
            yield Fault("kill", role, name, Arm(name, "kill", after))
            yield Fault("stop", role, name, Arm(name, "stop", after), seconds=_STOP_S)
        yield Fault("delay", role, name, Arm(name, "delay", seconds=_DELAY_S))


def _within_hand_offs() -> Iterator[Fault]:
    """A node has points of its own before and after each call."""
    for call in _CODES:
        for role in ("orchestrator", "helper", "mover", "waiter"):
            yield Fault("kill", role, during=call)
            yield Fault("stop", role, during=call, seconds=_STOP_S)
        yield Fault("stop", "mover", "for too long", during=call, seconds=_TOO_LONG_S)


def _while_a_job_holds() -> Iterator[Fault]:
    for role in ("orchestrator", "node"):
        yield Fault("kill", role, during=HOLD)
        yield Fault("stop", role, seconds=_STOP_S, during=HOLD)


def _special() -> Iterator[Fault]:
    yield Fault("full", "node", "journal-synced", Arm("journal-synced", "full", seconds=_FULL_S), seconds=_FULL_S)
    for role in ("node", "orchestrator"):
        yield Fault("full", role, seconds=_FULL_S)
    yield Fault("twice", "node", "command-taken", Arm("command-taken", "twice"))
    for point in ("acquire-taken", "yield-taken", "result-taken", "hello-taken"):
        yield Fault("twice", "orchestrator", point, Arm(point, "twice"))
    for seconds in (0.3, 2.0):
        yield Fault("late", "node", "command-taken", Arm("command-taken", "late", seconds=seconds), seconds=seconds)


def _at_random() -> Iterator[Fault]:
    for role in ("orchestrator", "node", "helper", "holder", "waiter", "parked"):
        yield Fault("kill", role)
        yield Fault("stop", role, seconds=_STOP_S)
    for role in ("orchestrator", "node", "holder", "waiter"):
        yield Fault("stop", role, "outlasting a lease", seconds=_LONG_STOP_S)
    for role in ("orchestrator", "node", "job"):
        for seconds in (2.0, 60.0):
            yield Fault("clock", role, f"{seconds:g} s ahead", seconds=seconds)
        yield Fault("clock", role, "an hour back", seconds=-3600.0)
    yield Fault("lost", "orchestrator", "all of its state")
    yield Fault("memory", "host", "too little to park", seconds=1.5)
    for _ in range(3):
        yield Fault("newcomer", "job", "between look and lock")


def _links() -> Iterator[Fault]:
    for whose in ("node", "jobs"):
        for mode in ("cut", "silent", "deaf", "mute"):
            yield Fault("link", whose, mode=mode, seconds=1.0)
        yield Fault("link", whose, "slow", mode="open", seconds=2.0)
        for mode in ("silent", "deaf", "mute"):
            yield Fault("link", whose, "until it is noticed", mode=mode, seconds=18.0)


# What a driver may answer at each step: not ready, out of memory, an OS error, unknown.
_CODES = {"lock": (600,), "checkpoint": (2, 304), "restore": (304,), "unlock": (999,)}


def _gpu() -> Iterator[Fault]:
    for call, codes in _CODES.items():
        scripts: list[dict[str, Any]] = [{"rc": code} for code in codes]
        scripts += [{"hang": True}, {"delay_ms": 700}]
        scripts += [{what: True, "after": after} for what in ("crash_caller", "kill_target") for after in (False, True)]
        for script in scripts:
            yield Fault("gpu", "gpu", call, gpu={"call": call, "nth": 1, **script})
    for call in ("checkpoint", "restore"):
        yield Fault("gpu", "gpu", call, gpu={"call": call, "nth": 1, "bandwidth": 20_000_000})
    yield Fault("gpu", "gpu", "restore", gpu={"call": "restore", "nth": 1, "poison": True})
    yield Fault("gpu", "gpu", "checkpoint", gpu={"call": "checkpoint", "nth": 1, "fail_state": True})


def faults() -> list[Fault]:
    """Each of them once."""
    return [
        *_at_points("orchestrator", (point.name for point in ORCHESTRATOR)),
        *_at_points("node", (point.name for point in NODE)),
        *_at_points("job", (point.name for point in JOB)),
        *_within_hand_offs(),
        *_while_a_job_holds(),
        *_special(),
        *_at_random(),
        *_links(),
        *_gpu(),
    ]


def deal(all_: Sequence[_F], seed: int) -> Iterator[_F]:
    """The faults in the order of a seed, every one before any comes again, for ever. Of each kind there is one before
    any comes a second time, so that a short run has all kinds."""
    while True:
        order = list(all_)
        random.Random(seed).shuffle(order)
        yield from sorted(order, key=_nth_of_its_kind())
        seed += 1_000_003


def _nth_of_its_kind() -> Callable[[AnyFault], int]:
    dealt: Counter[str] = Counter()

    def nth(fault: AnyFault) -> int:
        dealt[fault.kind] += 1
        return dealt[fault.kind]

    return nth
