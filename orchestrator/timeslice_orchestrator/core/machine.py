"""The core's one door: `Core.step`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from timeslice_orchestrator.core import clients, groups, handoffs, leases, nodes, resets, serving, views
from timeslice_orchestrator.core.books import NEVER, Books, Handoff, Request, Subject
from timeslice_orchestrator.core.effects import Effect, WakeAt
from timeslice_orchestrator.core.events import (
    AcquireRequested,
    CommandDone,
    Drained,
    Event,
    ForceReleased,
    GroupsChanged,
    LeasesRenewed,
    NodeConnected,
    NodeLost,
    PartsReported,
    ResetRequested,
    Resumed,
    Tick,
    WaiterDetached,
    Withdrawn,
    Yielded,
)
from timeslice_orchestrator.core.model import (
    DrainRecord,
    GroupId,
    GroupView,
    LeaseRecord,
    QuarantineRecord,
    Record,
    RequestId,
    RequestRecord,
    Settings,
    WaitingView,
)


class Core:
    """Locks, leases and hand-offs of one orchestrator.

    Args:
        settings: time limits.
        records: what the store held, after a restart.
        now: the present, in seconds of any monotonic clock; later calls use the same clock.
    """

    def __init__(self, settings: Settings, records: Iterable[Record] = (), now: float = 0.0) -> None:
        self._books = Books(settings, now)
        self._told = NEVER
        for record in records:
            _restore(self._books, record)
        self._books.out.take()  # what is restored is in the store already
        self._books.wake(now + settings.restart_grace_s, None)

    def step(self, event: Event, now: float) -> list[Effect]:
        """Takes an event and returns what must be done.

        Raises:
            TimesliceError: a client's event is refused; the state is as before.
        """
        self._books.now = now
        _HANDLERS[type(event)](self._books, event)
        serving.settle(self._books)
        effects = self._books.out.take()
        wake = self._books.next_wake()
        if wake != NEVER and (wake != self._told or isinstance(event, Tick)):
            effects.append(WakeAt(wake))
        self._told = wake
        return effects

    def groups(self) -> list[GroupId]:
        """All group ids, sorted."""
        return sorted(group_id for group_id, group in self._books.groups.items() if group.spec)

    def view(self, group_id: GroupId, now: float) -> GroupView:
        """A group as people see it. Raises GroupNotFound."""
        self._books.now = now
        return views.group_view(self._books, groups.known(self._books, group_id))

    def waiting(self, request_id: RequestId, now: float) -> WaitingView:
        """What a waiting request is told. Raises KeyError when it does not wait."""
        self._books.now = now
        return views.waiting_view(self._books, clients.live(self._books, request_id))


def _restore(books: Books, record: Record) -> None:
    settings = books.settings
    match record:
        case RequestRecord():
            clients.restore(books, record, settings.restart_grace_s)
        case LeaseRecord():
            leases.restore(books, record.lease, max(record.lease.ttl_s, settings.restart_grace_s))
        case DrainRecord():
            books.group(record.group_id).draining = True
        case QuarantineRecord():
            books.member(record.member).quarantine = record.reason
        case _:
            books.restore_counters(token=record.token, ticket=record.ticket)


def _drained(books: Books, event: Drained) -> None:
    groups.drain(books, groups.known(books, event.group_id))


def _resumed(books: Books, event: Resumed) -> None:
    groups.end_drain(books, groups.known(books, event.group_id))


def _groups_changed(books: Books, event: GroupsChanged) -> None:
    groups.replace_all(books, event.groups)


def _command_done(books: Books, event: CommandDone) -> None:
    node = books.node(event.node)
    if not resets.answered(books, node, event):
        handoffs.answered(books, node, event)


def _tick(books: Books, _: Tick) -> None:
    for subject in books.due():
        _due(books, subject)


def _due(books: Books, subject: Subject) -> None:
    if isinstance(subject, Request):
        clients.overdue(books, subject)
    elif isinstance(subject, Handoff):  # it was rolled back, and may be tried again now
        books.dirty.update(dict.fromkeys(subject.devices))
    else:
        groups.stop_awaiting_nodes(books)


_HANDLERS: dict[type[Any], Callable[[Books, Any], None]] = {
    AcquireRequested: clients.acquire,
    WaiterDetached: clients.detach,
    Withdrawn: clients.withdraw,
    Yielded: clients.yield_,
    LeasesRenewed: clients.renew,
    ForceReleased: clients.force_release,
    Drained: _drained,
    Resumed: _resumed,
    ResetRequested: resets.begin,
    GroupsChanged: _groups_changed,
    NodeConnected: nodes.connected,
    NodeLost: nodes.lost,
    PartsReported: nodes.reported,
    CommandDone: _command_done,
    Tick: _tick,
}
