"""Who may be served now, and why not: the one door through which every grant goes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timeslice_orchestrator.core import handoffs, leases, queue
from timeslice_orchestrator.core.books import Books, Device, Member, Request
from timeslice_orchestrator.core.model import PartState
from timeslice_orchestrator.core.tables import AWAY, Stage


def settle(books: Books) -> None:
    """Serves whoever can be served after what has changed in this step, in the order of tickets."""
    while books.dirty or books.again:
        found, books.again = books.again, {}
        for device in _spread(books):
            for request in queue.front(books, device):
                found[queue.ticket_of(request)] = request
        for ticket in sorted(found):
            serve(books, found[ticket])


def _spread(books: Books) -> Iterable[Device]:
    """The devices that changed, and those whose next hand-off would have to move a member that is also on these."""
    changed, books.dirty = books.dirty, {}
    spread = dict.fromkeys(part.member for device in changed for part in device.parts.values())
    return changed | dict.fromkeys(device for member in spread for device in member.devices)


def serve(books: Books, request: Request) -> None:
    """Grants a waiting request, or starts the hand-off that it needs, if nothing is in the way."""
    if request.stage is not Stage.WAITING or _not_yet(books, request):
        return
    moves = _Moves(_to_leave(request), _to_come(books, request))
    if _not_movable(books, request, moves):
        return
    if moves.leaving or moves.coming:
        handoffs.start(books, request, leaving=moves.leaving, coming=moves.coming)
    else:
        grant(books, request)


def grant(books: Books, request: Request) -> None:
    """Takes a request out of the queue and gives it its lease."""
    queue.leave(books, request)  # which has us look at others of its job, that may hold along with it
    books.out.drop(request.record)
    leases.grant(books, request)


def obstacle(books: Books, request: Request) -> str:
    """Why a request cannot be served now, in words; empty when it can, at once or by a hand-off."""
    moves = _Moves(_to_leave(request), _to_come(books, request))
    return _not_yet(books, request) or _not_movable(books, request, moves)


@dataclass(frozen=True, slots=True)
class _Moves:
    """The members that a grant would have to move."""

    leaving: list[Member]
    coming: list[Member]


def _not_yet(books: Books, request: Request) -> str:
    return (
        _its_groups(books, request)
        or _its_turn(books, request)
        or _its_nodes(books, request)
        or _its_members(books, request)
    )


def _owns_all(request: Request) -> bool:
    return all(device.holder == request.record.job_id for device in request.wants)


def _its_groups(books: Books, request: Request) -> str:
    if request.stage is Stage.DETACHED:
        return "its client is away"
    for group in queue.groups_of(books, request):
        if not group.spec:
            return f"group {group.group_id} is not known"
        if not queue.covered(books, request.record.job_id, group):
            return f"group {group.group_id} has no devices"
        if group.draining and not _owns_all(request):  # a job's other ranks may join what it is in
            return f"{group.group_id} is draining"
    return ""


def _its_turn(books: Books, request: Request) -> str:
    job_id = request.record.job_id
    for device in request.wants:
        if device.holder not in ("", job_id):
            return f"held by {device.holder}"
    other = queue.before(books, request)
    return f"behind {other.record.job_id}" if other else ""


def _its_nodes(books: Books, request: Request) -> str:
    for device in request.wants:
        if not device.node:
            return f"device {device.device_id} is in no group"
        if not device.node.connected:
            return f"{device.node.name} is not connected"
    # Until every node was heard once, a job may have parts that nobody knows of; a dead node is not awaited long.
    if books.now < books.started_at + books.settings.restart_grace_s:
        for group in queue.groups_of(books, request):
            for node in group.nodes:
                if not node.heard:
                    return f"{node.name} was not heard yet"
    return ""


def _its_members(books: Books, request: Request) -> str:
    for member in leases.members_of(books, request):
        for part in member.parts.values():
            if not part.node.connected:
                return f"{part.node.name} is not connected"
    for device in request.wants:
        for part in device.parts.values():
            if part.state is PartState.FAILED and part.resident:
                why = part.fault.message if part.fault else "it failed"
                return f"the state of {part.member.key.job_id} cannot leave {device.device_id}: {why}"
    return ""


def _not_movable(books: Books, request: Request, moves: _Moves) -> str:
    if not moves.leaving and not moves.coming:
        return "" if _owns_all(request) else _under_way(request.wants)
    for device in request.wants:
        if device.setback and device.retry_at > books.now:
            return device.setback.fault.message
    for member in moves.leaving:
        for device in member.devices:
            if device.holder not in ("", request.record.job_id):
                return f"{device.device_id} is held by {device.holder}"
        for part in member.parts.values():
            if not part.node.connected:
                return f"{part.node.name} is not connected"
    return _under_way([*request.wants, *(device for member in moves.leaving for device in member.devices)])


def _under_way(devices: Iterable[Device]) -> str:
    for device in devices:
        if device.handoff:
            return f"a hand-off to {device.handoff.request.record.job_id} is under way"
    return ""


def _to_leave(request: Request) -> list[Member]:
    """Members of other jobs with state on the devices, whether or not they ever held them."""
    job_id = request.record.job_id
    found = {
        part.member: None
        for device in request.wants
        for part in device.parts.values()
        if part.resident and part.member.key.job_id != job_id
    }
    return [*found]


def _to_come(books: Books, request: Request) -> list[Member]:
    """The job's members that have to be restored or unlocked."""
    return [m for m in leases.members_of(books, request) if any(part.state in AWAY for part in m.parts.values())]
