"""Groups: what discovery says of devices and who may use them."""

from __future__ import annotations

from collections.abc import Iterable

from timeslice_api.errors import GroupNotFound, JobNotAdmitted, Unavailable

from timeslice_orchestrator.core import members, queue
from timeslice_orchestrator.core.books import Books, Group
from timeslice_orchestrator.core.model import DrainRecord, GroupId, GroupSpec, JobId
from timeslice_orchestrator.core.tables import End


def known(books: Books, group_id: GroupId) -> Group:
    """The group of that name; GroupNotFound when discovery has none."""
    group = books.groups.get(group_id)
    if not group or not group.spec:
        raise GroupNotFound(f"group {group_id!r} is not known", group_id=group_id)
    return group


def awaited(books: Books, group_id: GroupId) -> Group:
    """The group of that name, for a client that wants to use it.

    Raises:
        Unavailable: there is none, but after a start nodes may be about to tell of it.
        GroupNotFound: there is none.
    """
    try:
        return known(books, group_id)
    except GroupNotFound as error:
        if books.now < books.started_at + books.settings.restart_grace_s:
            message = f"{error.message} yet: this orchestrator has just started, and nodes still tell of their groups"
            raise Unavailable(message, group_id=group_id) from error
        raise


def not_admitted(group: Group, job_id: JobId) -> JobNotAdmitted | None:
    """The error for a job that may not use a group; None when it may."""
    if not group.spec or group.spec.jobs is None or job_id in group.spec.jobs:
        return None
    return JobNotAdmitted(f"{job_id} may not use {group.group_id}", job_id=job_id, group_id=group.group_id)


def replace_all(books: Books, specs: Iterable[GroupSpec]) -> None:
    """Takes over the whole set of groups. Leases stay until they are given back, whatever became of their groups."""
    new = {spec.group_id: spec for spec in specs}
    changed = [books.group(group_id) for group_id in dict.fromkeys([*books.groups, *new])]
    changed = [group for group in changed if group.spec != new.get(group.group_id)]
    vanished = [group for group in changed if group.group_id not in new]
    for group in changed:
        _clear(group)
    for group in changed:
        _assign(books, group, new.get(group.group_id))
    for group in vanished:
        _refuse_all(books, group)
    for group in changed:
        _recheck(books, group)
    _forget_nodes(books)


def drain(books: Books, group: Group) -> None:
    """No further grants; holders go on."""
    if not group.draining:
        group.draining = True
        books.out.save(DrainRecord(group.group_id))
        books.out.touch(group.group_id)


def end_drain(books: Books, group: Group) -> None:
    """Grants again."""
    if group.draining:
        group.draining = False
        books.out.drop(DrainRecord(group.group_id))
        books.out.touch(group.group_id)
        books.dirty.update(dict.fromkeys(group.devices))


def stop_awaiting_nodes(books: Books) -> None:
    """The time is over for which nodes that were not heard yet held up everybody in their groups."""
    for group in books.groups.values():
        if group.waiting:
            books.dirty.update(dict.fromkeys(group.devices))
            books.out.touch(group.group_id)


def _clear(group: Group) -> None:
    for device in group.devices:
        if device.node:  # unless another group had it too, and is cleared already
            del device.node.devices[device.device_id]
        device.group_id, device.node = "", None
    group.devices = group.nodes = ()


def _assign(books: Books, group: Group, spec: GroupSpec | None) -> None:
    group.spec = spec
    for device_id, name in spec.devices if spec else ():
        device, node = books.device(device_id), books.node(name)
        device.group_id, device.node = group.group_id, node
        if device.held_in != group.group_id:
            device.held_in, device.held_s = group.group_id, 0.0
        node.devices[device_id] = device
    group.devices = tuple(books.device(device_id) for device_id, _ in spec.devices) if spec else ()
    group.nodes = tuple(dict.fromkeys(device.node for device in group.devices if device.node))
    books.out.touch(group.group_id)
    books.dirty.update(dict.fromkeys(group.devices))


def _refuse_all(books: Books, group: Group) -> None:
    for request in [*group.waiting.values()]:
        error = GroupNotFound(f"group {group.group_id!r} is gone", group_id=group.group_id)
        queue.end(books, request, End.REFUSED, error)


def _recheck(books: Books, group: Group) -> None:
    for request in [*group.waiting.values()]:
        if error := not_admitted(group, request.record.job_id):
            queue.end(books, request, End.REFUSED, error)
        else:
            members.rewant(books, request)


def _forget_nodes(books: Books) -> None:
    """A node that left all groups while its link is down is not awaited; a hello would bring its parts back."""
    for node in books.nodes.values():
        if not node.devices and not node.connected:
            for part in [*node.parts.values()]:
                members.gone(books, part, ended=False)
