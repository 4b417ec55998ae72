"""A core that says what the test wants, and what goes into it and comes out of it."""

from __future__ import annotations

from timeslice_orchestrator.core.effects import Effect, Granted, SendCommand
from timeslice_orchestrator.core.events import AcquireRequested, Event
from timeslice_orchestrator.core.model import Lease, WaitingView

LEASE = Lease("l1", "r1", "job-a", ("g",), frozenset({"d1"}), token=1, ttl_s=30.0)
GRANTED = Granted("r1", LEASE, 0.0, restored=False)
ASK = AcquireRequested("r1", "job-a", ("g",))
COMMAND = SendCommand("n1", 1, 1, (), 30.0)


class ScriptedCore:
    """Answers an event with the next effects of its script for that type, or with none."""

    def __init__(self) -> None:
        self.script: dict[type[Event], list[list[Effect]]] = {}
        self.seen: list[Event] = []
        self.waits: set[str] = set()

    def on(self, event: type[Event], *effects: Effect) -> None:
        self.script.setdefault(event, []).append(list(effects))

    def step(self, event: Event, now: float) -> list[Effect]:
        self.seen.append(event)
        answers = self.script.get(type(event))
        return answers.pop(0) if answers else []

    def waiting(self, request_id: str, now: float) -> WaitingView:
        if request_id not in self.waits:
            raise KeyError(request_id)
        return WaitingView(1, "job-b", 2.0, "held by job-b", 3.0)
