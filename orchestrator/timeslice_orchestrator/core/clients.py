"""What clients ask. Each function checks first and changes after, so a refused event leaves all as it was."""

from __future__ import annotations

from timeslice_api.errors import InvalidRequest, LeaseLost, NotHolder, QueueFull, RequestEnded

from timeslice_orchestrator.core import cycles, groups, leases, members, queue, serving
from timeslice_orchestrator.core.books import NEVER, Books, Ended, Request
from timeslice_orchestrator.core.effects import LeasesChecked, WithdrawAccepted, YieldAccepted
from timeslice_orchestrator.core.events import (
    AcquireRequested,
    ForceReleased,
    LeasesRenewed,
    WaiterDetached,
    Withdrawn,
    Yielded,
)
from timeslice_orchestrator.core.model import MemberKey, RequestId, RequestRecord
from timeslice_orchestrator.core.tables import TAKEN, End, Stage

_WAITS = (Stage.WAITING, Stage.DETACHED)


def acquire(books: Books, event: AcquireRequested) -> None:
    """A new request, or one that is asked for again: it finds its place, its lease, or how it ended."""
    _check(event)
    if request := books.requests.get(event.request_id):
        _ask_again(books, request, event)
    elif ended := books.ended.get(event.request_id):
        if event.job_id != ended.job_id:
            raise InvalidRequest(f"job_id: request {event.request_id!r} belongs to another job", job_id=event.job_id)
        raise ended.error or RequestEnded(f"request {event.request_id!r} has ended: {ended.how.value}")
    else:
        _arrive(books, event)


def _check(event: AcquireRequested) -> None:
    for field in ("request_id", "job_id", "group_ids"):
        if not getattr(event, field):
            raise InvalidRequest(f"{field} is empty", job_id=event.job_id)


def _ask_again(books: Books, request: Request, event: AcquireRequested) -> None:
    record = request.record
    if event.job_id != record.job_id:
        raise InvalidRequest(f"job_id: request {event.request_id!r} belongs to another job", job_id=event.job_id)
    if set(event.group_ids) != set(record.group_ids):
        raise InvalidRequest(f"group_ids: request {event.request_id!r} was made for {', '.join(record.group_ids)}")
    books.asked_by(request, event.process)
    if request.lease:  # its client lives, and has not heard of it
        leases.renew(books, request)
        books.out.add(leases.granted(request))
    elif request.stage is Stage.DETACHED:
        request.go(Stage.WAITING)
        request.due = NEVER
        books.again[queue.ticket_of(request)] = request


def _arrive(books: Books, event: AcquireRequested) -> None:
    group_ids = tuple(dict.fromkeys(event.group_ids))
    for group_id in group_ids:
        if refusal := groups.not_admitted(groups.awaited(books, group_id), event.job_id):
            raise refusal
        member = books.members.get(MemberKey(event.job_id, group_id))
        if member and member.quarantine:
            raise members.quarantined(member)
    ticket = books.last_ticket() + 1
    record = RequestRecord(event.request_id, event.job_id, group_ids, ticket, event.holder)
    request = Request(record, Stage.WAITING, books.now, queue.wanted(books, event.job_id, group_ids))
    if error := cycles.closed_by(books, request):
        raise error
    if books.waiting >= books.settings.max_waiting and serving.obstacle(books, request):
        raise QueueFull(f"{books.waiting} requests wait already", job_id=event.job_id)
    books.next_ticket()
    books.asked_by(request, event.process)
    queue.enter(books, request)
    books.out.save(record)
    serving.serve(books, request)


def detach(books: Books, event: WaiterDetached) -> None:
    """The client of a waiting request is away."""
    request = books.requests.get(event.request_id)
    if request and request.stage is Stage.WAITING:
        request.go(Stage.DETACHED)
        books.set_due(request, books.now + books.settings.waiter_grace_s)


def process_ended(books: Books, process: str) -> None:
    """Nobody can use any more what a process holds, or come for what it waits for."""
    for request in [*books.processes.get(process, ())]:
        if request.lease:
            leases.take(books, request, End.PROCESSES_ENDED)
        else:
            queue.end(books, request, End.LEFT)


def withdraw(books: Books, event: Withdrawn) -> None:
    """A request is taken back, whatever has become of it; one that comes after its withdrawal is refused."""
    request = books.requests.get(event.request_id)
    if request and request.record.job_id != event.job_id:
        raise NotHolder(f"request {event.request_id!r} belongs to another job", job_id=event.job_id)
    if not request:
        if event.request_id not in books.ended:
            books.remember(event.request_id, Ended(event.job_id, End.WITHDRAWN))
    elif request.lease:
        leases.end(books, request, End.WITHDRAWN)
    else:
        queue.end(books, request, End.WITHDRAWN)
    books.out.add(WithdrawAccepted(event.request_id, withdrawn=request is not None))


def yield_(books: Books, event: Yielded) -> None:
    """A lease is given back."""
    request = leases.find(books, event.lease_id)
    if request and request.record.job_id == event.job_id:
        waiting = queue.others(leases.devices_of(books, request), event.job_id)
        leases.end(books, request, End.YIELDED)
        books.out.add(YieldAccepted(event.lease_id, waiting, already_yielded=False))
        return
    ended = None if request else books.ended.get(leases.request_id_of(event.lease_id))
    if not ended or ended.job_id != event.job_id or ended.how in (End.REFUSED, End.LEFT):
        raise NotHolder(f"{event.job_id} does not hold lease {event.lease_id!r}", job_id=event.job_id)
    if ended.how in TAKEN:
        raise LeaseLost(f"lease {event.lease_id!r} has {ended.how.value}", job_id=event.job_id)
    books.out.add(YieldAccepted(event.lease_id, 0, already_yielded=True))


def renew(books: Books, event: LeasesRenewed) -> None:
    """A client lives: its leases go on, and it learns which it has lost and which others want."""
    lost, wanted = [], []
    for lease_id in event.lease_ids:
        request = leases.find(books, lease_id)
        if not request or request.record.job_id != event.job_id:
            lost.append(lease_id)
            continue
        leases.renew(books, request)
        if queue.is_wanted(leases.devices_of(books, request), event.job_id):
            wanted.append(lease_id)
    books.out.add(LeasesChecked(tuple(lost), tuple(wanted)))


def force_release(books: Books, event: ForceReleased) -> None:
    """An admin takes leases away."""
    for request in leases.of_group(books, groups.known(books, event.group_id), event.job_id):
        leases.take(books, request, End.FORCED)


def overdue(books: Books, request: Request) -> None:
    """A request's timer has come: its time may be over, or may have been moved on since."""
    request.timer = NEVER
    if request.stage is Stage.ENDED or request.due == NEVER:
        return
    if request.due > books.now:
        books.set_due(request, request.due)
    elif request.stage in _WAITS:
        queue.end(books, request, End.LEFT)
    else:
        leases.overdue(books, request)


def restore(books: Books, record: RequestRecord, grace_s: float) -> None:
    """A request of before a restart keeps its place until its client has found it again."""
    request = Request(record, Stage.DETACHED, books.now)
    queue.enter(books, request)
    books.restore_counters(ticket=record.ticket)
    books.set_due(request, books.now + grace_s)


def live(books: Books, request_id: RequestId) -> Request:
    """The waiting request of that id; KeyError when it does not wait."""
    request = books.requests[request_id]
    if request.stage not in _WAITS:
        raise KeyError(request_id)
    return request
