"""Tickets: who wants which devices, and who is first in line on each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from timeslice_api.errors import TimesliceError

from timeslice_orchestrator.core.books import Books, Device, Ended, Group, Request
from timeslice_orchestrator.core.effects import Refused
from timeslice_orchestrator.core.model import GroupId, JobId, MemberKey
from timeslice_orchestrator.core.tables import End, Stage


def ticket_of(request: Request) -> int:
    """The order of service."""
    return request.record.ticket


def covered(books: Books, job_id: JobId, group: Group) -> tuple[Device, ...]:
    """The devices that a job uses in a group: those of its member, all of them while it has none."""
    member = books.members.get(MemberKey(job_id, group.group_id))
    return (member.devices if member else ()) or group.devices


def wanted(books: Books, job_id: JobId, group_ids: Iterable[GroupId]) -> tuple[Device, ...]:
    """The devices that an acquire covers."""
    groups = map(books.group, group_ids)
    return tuple(dict.fromkeys(device for group in groups for device in covered(books, job_id, group)))


def enter(books: Books, request: Request) -> None:
    """Puts a request into the queues of its devices."""
    ticket, job_id = ticket_of(request), request.record.job_id
    for device in request.wants:
        device.queue.insert(place(device, ticket), request)
        device.jobs[job_id] = device.jobs.get(job_id, 0) + 1
    for group in groups_of(books, request):
        group.waiting[ticket] = request
        books.out.touch(group.group_id)
    books.job(job_id).waiting[ticket] = request
    books.job_changed(job_id)
    books.requests[request.record.request_id] = request
    books.waiting += 1


def leave(books: Books, request: Request) -> None:
    """Takes a request out of the queues; those behind it may be served now."""
    ticket, job_id = ticket_of(request), request.record.job_id
    for device in request.wants:
        del device.queue[place(device, ticket)]
        device.jobs[job_id] -= 1
        if not device.jobs[job_id]:
            del device.jobs[job_id]
        books.dirty[device] = None
    for group in groups_of(books, request):
        del group.waiting[ticket]
        books.out.touch(group.group_id)
    del books.jobs[job_id].waiting[ticket]
    books.job_changed(job_id)
    books.waiting -= 1


def move(books: Books, request: Request) -> bool:
    """Finds anew which devices a waiting request covers; True when they are others. It keeps its ticket."""
    wants = wanted(books, request.record.job_id, request.record.group_ids)
    if wants == request.wants:
        return False
    leave(books, request)
    request.wants = wants
    enter(books, request)
    books.again[ticket_of(request)] = request
    return True


def end(books: Books, request: Request, how: End, error: TimesliceError | None = None) -> None:
    """Ends a waiting request, and tells its client when there is an error to tell."""
    leave(books, request)
    request.go(Stage.ENDED)
    books.out.drop(request.record)
    forget(books, request, Ended(request.record.job_id, how, error))
    if error:
        books.out.add(Refused(request.record.request_id, error))


def forget(books: Books, request: Request, ended: Ended) -> None:
    """Removes an ended request from the live ones and remembers how it ended."""
    books.asked_by(request, "")
    del books.requests[request.record.request_id]
    books.remember(request.record.request_id, ended)


def groups_of(books: Books, request: Request) -> Iterator[Group]:
    """The groups that a request names."""
    return map(books.group, request.record.group_ids)


def place(device: Device, ticket: int) -> int:
    """How many requests are before this ticket on a device."""
    queue = device.queue
    if not queue or ticket_of(queue[-1]) < ticket:
        return len(queue)
    return bisect_left(queue, ticket, key=ticket_of)


def position(request: Request) -> int:
    """1 for the first in line, on the device where most are before it."""
    ahead = (place(d, ticket_of(request)) for d in request.wants if d.holder != request.record.job_id)
    return 1 + max(ahead, default=0)


def before(books: Books, request: Request) -> Request | None:
    """The first earlier request of another job that it has to wait for on a device that its job does not hold."""
    job_id = request.record.job_id
    asked = [d for d in request.wants if d.holder != job_id and len(d.jobs) > (job_id in d.jobs)]
    own = joined(books, request) if asked else set()
    return next((other for device in asked for other in ahead(device, request, own)), None)


def joined(books: Books, request: Request) -> set[Device]:
    """What the request's job holds in its groups, also where it has no part any more and so wants nothing any more."""
    job = books.jobs.get(request.record.job_id)
    leases = (held.lease for held in job.held.values() if held.lease) if job else ()
    own = {books.device(device_id) for lease in leases for device_id in lease.devices}
    return {device for device in own if device.group_id in request.record.group_ids or device in request.wants}


def ahead(device: Device, request: Request, joined: set[Device]) -> Iterator[Request]:
    """The earlier requests of other jobs on a device that a request has to wait for.

    One that wants what the request's job holds and joins, and what it asks for along with more, is no such request, nor
    is any behind that one. So a rank that comes later, or again, joins the others: it would wait for itself.
    """
    job_id = request.record.job_id
    for other in islice(device.queue, place(device, ticket_of(request))):
        if other.record.job_id != job_id:
            if joined and not joined.isdisjoint(other.wants):
                return
            yield other


def front(books: Books, device: Device) -> Iterator[Request]:
    """The requests that may be next on a device: its holder's own; or the run of the first job in line, and before it
    those of jobs that hold what it waits for, which may pass it."""
    if device.holder:
        yield from _of_job(books, device.holder, device)
        return
    if device.queue:
        for job_id in dict.fromkeys(other.holder for other in device.queue[0].wants if other.holder):
            yield from _of_job(books, job_id, device)
    for request in device.queue:
        if request.record.job_id != device.queue[0].record.job_id:
            return
        yield request


def _of_job(books: Books, job_id: JobId, device: Device) -> Iterator[Request]:
    return (request for request in books.jobs[job_id].waiting.values() if device in request.wants)


def others(devices: Sequence[Device], job_id: JobId) -> int:
    """How many requests of other jobs want any of the devices."""
    if len(devices) == 1:
        return len(devices[0].queue) - devices[0].jobs.get(job_id, 0)
    return len({ticket_of(r) for device in devices for r in device.queue if r.record.job_id != job_id})


def is_wanted(devices: Iterable[Device], job_id: JobId) -> bool:
    """Whether another job waits for any of the devices."""
    return any(len(device.jobs) > (job_id in device.jobs) for device in devices)
