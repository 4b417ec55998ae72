"""Members: what nodes say of their parts, and what follows from it for queue and leases."""

from __future__ import annotations

from dataclasses import replace

from timeslice_api.errors import JobQuarantined

from timeslice_orchestrator.core import cycles, leases, queue
from timeslice_orchestrator.core.books import NEVER, Books, Device, Member, Node, Part, Request
from timeslice_orchestrator.core.model import MemberKey, PartReport, PartState, QuarantineRecord
from timeslice_orchestrator.core.tables import AWAY, RESIDENT, End


def observe(books: Books, node: Node, report: PartReport, *, locked: bool = False) -> None:
    """Takes over what a node says of a part.

    A part that was granted while EMPTY may be used before its node notices, so only the answer to a command that had
    it locked (`locked`) is believed when it says EMPTY.
    """
    member = books.member(report.member)
    part = member.parts.get(node.name) or _join(books, member, node)
    grew = part.devices != report.devices
    if grew:
        _cover(books, part, report.devices)
    old = part.state, part.resident, part.bytes_, part.processes
    _set_state(books, part, report, locked=locked)
    part.fault, part.bytes_, part.processes = report.fault, report.bytes_, report.processes
    if not grew and old == (part.state, part.resident, part.bytes_, part.processes):
        return
    books.out.touch(member.key.group_id)
    _look_again(books, part)
    if grew:
        _rewant(books, member.key)
    _take_incomplete(books, part)
    if part.state is not PartState.FAILED:
        end_stale_quarantine(books, member)
    elif not member.quarantine:
        _quarantine(books, member, report.fault.message if report.fault else f"failed on {node.name}")


def _take_incomplete(books: Books, part: Part) -> None:
    """A job that holds, and has state put away where it does not hold, was granted before its node was heard of. It
    would wait in its next call for ever: without the lease it asks again, and for all of its devices."""
    if part.state not in AWAY or any(books.devices[device_id].handoff for device_id in part.devices):
        return
    job = books.jobs.get(part.member.key.job_id)
    held = [*job.held.values()] if job else []
    covered = frozenset().union(*(request.lease.devices for request in held if request.lease))
    for request in held:
        if part.member.key.group_id in request.record.group_ids and not part.devices <= covered:
            leases.take(books, request, End.INCOMPLETE)


def gone(books: Books, part: Part, *, ended: bool = True) -> None:
    """Removes a part. `ended`: its processes are known to have ended, which may end its job's leases."""
    member = part.member
    _look_again(books, part)
    _hurry(books, part)
    _cover(books, part, frozenset())
    del member.parts[part.node.name], part.node.parts[member.key]
    books.out.touch(member.key.group_id)
    if not member.parts:
        if ended:
            leases.processes_ended(books, member)
        remove(books, member)
    else:
        end_stale_quarantine(books, member)
    _rewant(books, member.key)


def end_quarantine(books: Books, member: Member) -> None:
    """Lets a member take part again."""
    books.out.drop(QuarantineRecord(member.key, member.quarantine))
    member.quarantine = ""
    books.out.touch(member.key.group_id)


def end_stale_quarantine(books: Books, member: Member) -> None:
    """What failed has ended, or its node can tell its state again. After a restart only all nodes together know."""
    if not member.quarantine or any(part.state is PartState.FAILED for part in member.parts.values()):
        return
    if all(node.heard for node in books.group(member.key.group_id).nodes):
        end_quarantine(books, member)


def _join(books: Books, member: Member, node: Node) -> Part:
    part = Part(member, node, frozenset(), PartState.EMPTY, resident=False)
    member.parts[node.name] = node.parts[member.key] = part
    leases.joined(books, member)
    return part


def remove(books: Books, member: Member) -> None:
    """Forgets a member without parts, and its quarantine with it."""
    if member.quarantine:
        end_quarantine(books, member)
    del books.members[member.key]
    del books.groups[member.key.group_id].members[member.key]


def _cover(books: Books, part: Part, devices: frozenset[str]) -> None:
    for device_id in part.devices - devices:
        del books.devices[device_id].parts[part.member.key, part.node.name]
    for device_id in devices - part.devices:
        books.device(device_id).parts[part.member.key, part.node.name] = part
    part.devices = devices
    ids = sorted({device_id for other in part.member.parts.values() for device_id in other.devices})
    part.member.devices = tuple(map(books.device, ids))


def _set_state(books: Books, part: Part, report: PartReport, *, locked: bool) -> None:
    state = report.state
    part.assumed = state is PartState.EMPTY and (_held(books, part) or (part.assumed and not locked))
    part.state = PartState.RUNNING if part.assumed else state
    part.resident = part.state in RESIDENT or (state is PartState.FAILED and report.resident)


def _held(books: Books, part: Part) -> bool:
    return any(books.devices[device_id].holder == part.member.key.job_id for device_id in part.devices)


def _look_again(books: Books, part: Part) -> None:
    for device_id in part.devices:
        device: Device = books.devices[device_id]
        if not device.handoff:  # its end will have us look
            books.dirty[device] = None


def _hurry(books: Books, part: Part) -> None:
    """Has hand-offs that failed tried again without the long wait: what has ended may be what they failed on."""
    for device in map(books.device, part.devices):
        handoff = device.handoff
        if handoff and handoff.fault and handoff.culprit == part.member.key:
            handoff.fault = replace(handoff.fault, retryable=True)
        if device.retry_at > books.now:
            for wanted in [wanted for request in device.queue for wanted in request.wants]:
                wanted.retry_at = -NEVER


def _rewant(books: Books, key: MemberKey) -> None:
    job = books.jobs.get(key.job_id)
    for request in [*job.waiting.values()] if job else []:
        if key.group_id in request.record.group_ids:
            rewant(books, request)


def rewant(books: Books, request: Request) -> None:
    """Has a waiting request want what it should want now; one that would close a cycle by that is refused."""
    if queue.move(books, request) and (error := cycles.closed_by(books, request)):
        queue.end(books, request, End.REFUSED, error)


def _quarantine(books: Books, member: Member, reason: str) -> None:
    member.quarantine = reason
    books.out.save(QuarantineRecord(member.key, reason))
    job = books.jobs.get(member.key.job_id)
    for request in [*job.waiting.values()] if job else []:
        if member.key.group_id in request.record.group_ids:
            queue.end(books, request, End.REFUSED, quarantined(member))


def quarantined(member: Member) -> JobQuarantined:
    """The error that a request for a member in quarantine gets."""
    job_id, group_id = member.key.job_id, member.key.group_id
    return JobQuarantined(f"{job_id} in {group_id}: {member.quarantine}", job_id=job_id, group_id=group_id)
