"""The core's one door: `Core.step`."""

from __future__ import annotations

from collections.abc import Iterable

from timeslice_orchestrator.core.effects import Effect
from timeslice_orchestrator.core.events import Event
from timeslice_orchestrator.core.model import GroupId, GroupView, Record, RequestId, Settings, WaitingView


class Core:
    """Locks, leases and hand-offs of one orchestrator.

    Args:
        settings: time limits.
        records: what the store held, after a restart.
        now: the present, in seconds of any monotonic clock; later calls use the same clock.
    """

    def __init__(self, settings: Settings, records: Iterable[Record] = (), now: float = 0.0) -> None: ...

    def step(self, event: Event, now: float) -> list[Effect]:
        """Takes an event and returns what must be done.

        Raises:
            TimesliceError: a client's event is refused; the state is as before.
        """
        raise NotImplementedError

    def groups(self) -> list[GroupId]:
        """All group ids, sorted."""
        raise NotImplementedError

    def view(self, group_id: GroupId, now: float) -> GroupView:
        """A group as people see it. Raises GroupNotFound."""
        raise NotImplementedError

    def waiting(self, request_id: RequestId, now: float) -> WaitingView:
        """What a waiting request is told. Raises KeyError when it does not wait."""
        raise NotImplementedError
