"""What people see: groups and waiting requests in words and numbers."""

from __future__ import annotations

from dataclasses import replace

from timeslice_orchestrator.core import handoffs, queue, serving
from timeslice_orchestrator.core.books import Books, Device, Group, Handoff, Member, Request
from timeslice_orchestrator.core.model import (
    GroupView,
    HolderView,
    JobId,
    MemberView,
    PartView,
    WaiterView,
    WaitingView,
)


def group_view(books: Books, group: Group) -> GroupView:
    """A group as it is now."""
    waiting = [group.waiting[ticket] for ticket in sorted(group.waiting)]
    current = next((device.handoff for device in group.devices if device.handoff), None)
    return GroupView(
        group_id=group.group_id,
        devices=tuple((d.device_id, d.node.name, d.node.connected) for d in group.devices if d.node),
        members=tuple(_member(group.members[key]) for key in sorted(group.members)),
        holders=_holders(books, group),
        waiters=tuple(_waiter(books, request) for request in waiting),
        switching_to=current.request.record.job_id if current else "",
        under_way=handoffs.progress(books, current) if current else "",
        draining=group.draining,
        blocked_reason=reason(books, waiting[0]) if waiting else "",
        setbacks=tuple(dict.fromkeys(d.setback for d in group.devices if d.setback and d.queue)),
        duty_cycle=_duty_cycle(books, group),
        totals=replace(group.totals),
    )


def waiting_view(books: Books, request: Request) -> WaitingView:
    """What a waiting request is told now."""
    holder = next((d for d in request.wants if d.holder not in ("", request.record.job_id)), None)
    why = reason(books, request)
    if not why and (current := _handoff_for(request)):
        told = handoffs.progress(books, current)
        why = f"a hand-off to {current.request.record.job_id} is under way" + (f": {told}" if told else "")
    return WaitingView(
        position=queue.position(request),
        holder_job_id=holder.holder if holder else "",
        held_s=books.now - holder.held_since if holder else 0.0,
        reason=why,
        waited_s=books.now - request.arrived_at,
    )


def reason(books: Books, request: Request) -> str:
    """Why a request is not being served; empty while its hand-off makes progress."""
    current = _handoff_for(request)
    if not current:
        return serving.obstacle(books, request)
    return (current.fault.message if current.fault else "") or handoffs.stuck(books, current)


def _handoff_for(request: Request) -> Handoff | None:
    """The hand-off that brings a request's job onto its devices."""
    for device in request.wants:
        if device.handoff and device.handoff.request.record.job_id == request.record.job_id:
            return device.handoff
    return None


def _member(member: Member) -> MemberView:
    parts = (PartView(node, p.state, p.bytes_, p.processes) for node, p in sorted(member.parts.items()))
    return MemberView(member.key.job_id, tuple(parts), member.quarantine)


def _waiter(books: Books, request: Request) -> WaiterView:
    record = request.record
    waited_s = books.now - request.arrived_at
    return WaiterView(record.job_id, record.request_id, queue.position(request), waited_s, record.holder)


def _holders(books: Books, group: Group) -> tuple[HolderView, ...]:
    since: dict[JobId, float] = {}
    for device in group.devices:
        if device.holder:
            since[device.holder] = min(since.get(device.holder, device.held_since), device.held_since)
    return tuple(_holder(books, group, job_id, since[job_id]) for job_id in sorted(since))


def _holder(books: Books, group: Group, job_id: JobId, since: float) -> HolderView:
    held = books.jobs[job_id].held.values()
    tokens = [r.lease.token for r in held if r.lease and group.group_id in r.record.group_ids]
    return HolderView(job_id, len(tokens), books.now - since, max(tokens, default=0))


def _duty_cycle(books: Books, group: Group) -> float:
    """The sum of the time that each device was held, over devices x the time since the first grant."""
    elapsed = books.now - group.first_grant_at
    if elapsed <= 0 or not group.devices:
        return 0.0
    return min(1.0, sum(_held_s(books, device) for device in group.devices) / (len(group.devices) * elapsed))


def _held_s(books: Books, device: Device) -> float:
    return device.held_s + (books.now - device.held_since if device.holder else 0.0)
