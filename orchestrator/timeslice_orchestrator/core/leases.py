"""Leases: what a granted request holds, for how long, and how it ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from timeslice_orchestrator.core import cycles, queue
from timeslice_orchestrator.core.books import NEVER, Books, Device, Ended, Group, Member, Node, Request
from timeslice_orchestrator.core.effects import Granted, LeasesEnded
from timeslice_orchestrator.core.model import (
    JobId,
    Lease,
    LeaseId,
    LeaseRecord,
    MemberKey,
    PartState,
    RequestId,
    RequestRecord,
)
from timeslice_orchestrator.core.tables import End, Stage

_PREFIX = "lease-"


def grant(books: Books, request: Request) -> None:
    """Gives a request its devices. The caller has made sure that it may have them."""
    record = request.record
    request.go(Stage.HELD)
    request.waited_s, request.granted_at = books.now - request.arrived_at, books.now
    request.granted_after = books.last_ticket()
    request.lease = Lease(
        lease_id=_PREFIX + record.request_id,
        request_id=record.request_id,
        job_id=record.job_id,
        group_ids=record.group_ids,
        devices=frozenset(device.device_id for device in request.wants),
        token=books.next_token(),
        ttl_s=min(_own_ttl_s(books, request), default=books.settings.lease_ttl_s),
    )
    hold(books, request, request.wants)
    books.set_due(request, books.now + request.lease.ttl_s)
    for group in queue.groups_of(books, request):
        group.totals.grants += 1
        group.first_grant_at = min(group.first_grant_at, books.now)
    books.out.save(LeaseRecord(request.lease))
    books.out.add(granted(request))


def restore(books: Books, lease: Lease, ttl_s: float) -> None:
    """A lease of before a restart goes on; its holder has a whole time to live to be heard again."""
    record = RequestRecord(lease.request_id, lease.job_id, lease.group_ids, ticket=0)
    request = Request(record, Stage.HELD, books.now, lease=lease, granted_at=books.now)
    hold(books, request, devices_of(books, request))
    books.restore_counters(token=lease.token)
    books.set_due(request, books.now + ttl_s)


def granted(request: Request) -> Granted:
    """What the client of a granted request is told, each time that it asks."""
    assert request.lease
    return Granted(request.record.request_id, request.lease, request.waited_s, request.restored)


def hold(books: Books, request: Request, devices: Iterable[Device]) -> None:
    """Marks devices as held by a request's job; its parts there may be resident from now on."""
    record = request.record
    books.requests[record.request_id] = request
    books.job(record.job_id).held[record.request_id] = request
    books.job_changed(record.job_id)
    for device in devices:
        if not device.holds:
            device.holder, device.held_since = record.job_id, books.now
        device.holds += 1
    for group in queue.groups_of(books, request):
        books.out.touch(group.group_id)
        member = books.members.get(MemberKey(record.job_id, group.group_id))
        if member and member.parts:
            request.had_parts = True
            assume_use(member)


def assume_use(member: Member) -> None:
    """Parts with nothing on the devices may put something there from now on."""
    for part in member.parts.values():
        if part.state is PartState.EMPTY:
            part.state, part.resident, part.assumed = PartState.RUNNING, True, True


def find(books: Books, lease_id: LeaseId) -> Request | None:
    """The request that holds a lease."""
    request = books.requests.get(request_id_of(lease_id))
    return request if request and request.lease else None


def request_id_of(lease_id: LeaseId) -> RequestId:
    """Lease ids are made of request ids, so a repeated grant needs no memory to be the same."""
    return lease_id.removeprefix(_PREFIX) if lease_id.startswith(_PREFIX) else ""


def devices_of(books: Books, request: Request) -> list[Device]:
    """The devices that a granted request holds."""
    assert request.lease
    return [books.device(device_id) for device_id in sorted(request.lease.devices)]


def end(books: Books, request: Request, how: End) -> None:
    """Ends a lease; its devices are free when no other lease of the job covers them. Their state stays."""
    assert request.lease
    request.go(Stage.ENDED)
    request.due = NEVER
    freed = [device for device in devices_of(books, request) if _release(books, device)]
    for group in queue.groups_of(books, request):
        books.out.touch(group.group_id)
    books.out.drop(LeaseRecord(request.lease))
    del books.jobs[request.record.job_id].held[request.record.request_id]
    books.job_changed(request.record.job_id)
    queue.forget(books, request, Ended(request.record.job_id, how))
    _queue_again(books, request.record.job_id, freed)


def _release(books: Books, device: Device) -> bool:
    """One lease less on a device; True when it was the last."""
    device.holds -= 1
    if device.holds:
        return False
    device.holder = ""
    device.held_s += books.now - device.held_since
    books.dirty[device] = None
    return True


def _queue_again(books: Books, job_id: JobId, freed: list[Device]) -> None:
    """A job's requests queue from now on for what it held; one that thereby waits in a circle is refused."""
    job = books.jobs.get(job_id)
    for request in [*job.waiting.values()] if job and freed else []:
        if not set(freed).isdisjoint(request.wants) and (error := cycles.closed_by(books, request)):
            queue.end(books, request, End.REFUSED, error)


def take(books: Books, request: Request, how: End) -> None:
    """Ends a lease that its holder has not given back."""
    assert request.lease
    end(books, request, how)
    books.out.add(LeasesEnded((request.lease.lease_id,), request.record.job_id, how.value))


def renew(books: Books, request: Request) -> None:
    """A lease's time to live starts anew."""
    assert request.lease
    if request.stage is Stage.SUSPECT:
        request.go(Stage.HELD)
    books.set_due(request, books.now + request.lease.ttl_s)


def overdue(books: Books, request: Request) -> None:
    """A lease's time is over: it ends if nobody lives to use it, else it becomes suspect, and ends after the grace.

    While a node that may carry its processes is not heard, it stays: nothing could be granted there anyway.
    """
    grace = books.now + min(_own_grace_s(books, request), default=books.settings.lease_grace_s)
    members = members_of(books, request)
    if _unheard(books, request, members):
        books.set_due(request, grace)
    elif request.stage is Stage.HELD and any(member.parts for member in members):
        request.go(Stage.SUSPECT)
        books.set_due(request, grace)
    else:
        take(books, request, End.EXPIRED)


def processes_ended(books: Books, member: Member) -> None:
    """A member is gone: leases whose job has no part left in their groups end at once."""
    job = books.jobs.get(member.key.job_id)
    for request in [*job.held.values()] if job else []:
        alone = member.key.group_id in request.record.group_ids and request.had_parts
        if alone and not any(other.parts for other in members_of(books, request)):
            take(books, request, End.PROCESSES_ENDED)


def joined(books: Books, member: Member) -> None:
    """A member has its first part: leases of its job that cover the group know that it lives."""
    job = books.jobs.get(member.key.job_id)
    for request in job.held.values() if job else ():
        if member.key.group_id in request.record.group_ids:
            request.had_parts = True


def of_group(books: Books, group: Group, job_id: JobId) -> list[Request]:
    """The leases that cover a group, of one job or, with an empty name, of all."""
    holders = {device.holder for device in group.devices if device.holder}
    jobs = [job_id] if job_id else sorted(holders)
    held = [request for name in jobs if name in books.jobs for request in books.jobs[name].held.values()]
    return [request for request in held if group.group_id in request.record.group_ids]


def members_of(books: Books, request: Request) -> list[Member]:
    """The job's members in the groups of a request."""
    keys = (MemberKey(request.record.job_id, group_id) for group_id in request.record.group_ids)
    return [books.members[key] for key in keys if key in books.members]


def _own_ttl_s(books: Books, request: Request) -> Iterator[float]:
    for group in queue.groups_of(books, request):
        if group.spec and group.spec.lease.ttl_s is not None:
            yield group.spec.lease.ttl_s


def _own_grace_s(books: Books, request: Request) -> Iterator[float]:
    for group in queue.groups_of(books, request):
        if group.spec and group.spec.lease.grace_s is not None:
            yield group.spec.lease.grace_s


def _unheard(books: Books, request: Request, members: list[Member]) -> bool:
    nodes: list[Node | None] = [part.node for member in members for part in member.parts.values()]
    nodes += [device.node for device in devices_of(books, request)]
    return any(node and not node.connected for node in nodes)
