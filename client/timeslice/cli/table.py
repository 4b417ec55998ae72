"""Groups as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from timeslice_api.v1alpha1 import orchestrator_pb2, types_pb2

_HEAD = ("GROUP", "HOLDER", "HELD", "WAITING", "DEVICES", "DUTY", "HAND-OFFS")
_WAITERS_SHOWN = 3
_STATE_PREFIX = len("PART_STATE_")


def text(groups: Iterable[orchestrator_pb2.Group], *, age_s: float = 0.0) -> str:
    """A line for each group, and below it one for each part of a job. `age_s`: how old the figures are."""
    groups = list(groups)
    if not groups:
        return "no groups: a groups file or a node brings them\n"
    rows = [_HEAD, *(_row(group, age_s) for group in groups)]
    lines = iter(_aligned(rows))
    out = [next(lines)]
    for group in groups:
        out += [next(lines), *_notes(group), *_aligned([_part_row(*part) for part in _parts(group)], indent=2)]
    return "\n".join(out) + "\n"


def as_json(group: orchestrator_pb2.Group) -> dict[str, Any]:
    """A group, with the names of the protocol; the keys are always there. Times in seconds, sizes in bytes."""
    totals = group.totals
    return {
        "group_id": group.group_id,
        "devices": [
            {"device_id": device.device_id, "node": device.node, "connected": device.connected}
            for device in group.devices
        ],
        "members": [_member_json(member) for member in group.members],
        "holders": [
            {
                "job_id": holder.job_id,
                "leases": holder.leases,
                "held_s": holder.held_s,
                "fencing_token": holder.fencing_token,
            }
            for holder in group.holders
        ],
        "waiters": [
            {
                "job_id": waiter.job_id,
                "request_id": waiter.request_id,
                "position": waiter.position,
                "waited_s": waiter.waited_s,
                "holder": waiter.holder,
            }
            for waiter in group.waiters
        ],
        "switching_to_job_id": group.switching_to_job_id,
        "under_way": group.under_way,
        "draining": group.draining,
        "blocked_reason": group.blocked_reason,
        "handoffs": group.handoffs,
        "duty_cycle": group.duty_cycle,
        "totals": {
            "grants": totals.grants,
            "bytes_parked": totals.bytes_parked,
            "bytes_restored": totals.bytes_restored,
            "handoff_s": totals.handoff_s,
            "lock_s": totals.seconds.lock_s,
            "checkpoint_s": totals.seconds.checkpoint_s,
            "restore_s": totals.seconds.restore_s,
            "unlock_s": totals.seconds.unlock_s,
        },
    }


def _member_json(member: orchestrator_pb2.GroupMember) -> dict[str, Any]:
    parts = [
        {"node": part.node, "state": _state(part.state), "bytes": part.bytes, "processes": part.processes}
        for part in member.parts
    ]
    return {"job_id": member.job_id, "parts": parts, "quarantine_reason": member.quarantine_reason}


def _row(group: orchestrator_pb2.Group, age_s: float) -> tuple[str, ...]:
    holders = ", ".join(
        f"{holder.job_id} x{holder.leases}" if holder.leases > 1 else holder.job_id for holder in group.holders
    )
    held = max((holder.held_s + age_s for holder in group.holders), default=None)
    switching = f"-> {group.switching_to_job_id}" if group.switching_to_job_id else ""
    shown = [f"{each.job_id} ({_seconds(each.waited_s + age_s)})" for each in group.waiters[:_WAITERS_SHOWN]]
    more = [f"{len(group.waiters) - _WAITERS_SHOWN} more"] if len(group.waiters) > _WAITERS_SHOWN else []
    waiting = ", ".join(shown + more)
    return (
        group.group_id,
        holders or switching or "-",
        "-" if held is None else _seconds(held),
        waiting or "-",
        str(len(group.devices)),
        f"{group.duty_cycle:.0%}",
        str(group.handoffs),
    )


def _notes(group: orchestrator_pb2.Group) -> list[str]:
    notes = ["  draining: no further grants"] if group.draining else []
    if group.under_way:
        notes.append(f"  hand-off to {group.switching_to_job_id}: {group.under_way}")
    held = {f"held by {holder.job_id}" for holder in group.holders}  # the line above says that already
    if group.blocked_reason and group.blocked_reason not in held:
        notes.append(f"  not served: {group.blocked_reason}")
    if not group.devices:
        notes.append("  no devices: no node with devices of this group has been heard")
    silent = sorted({device.node for device in group.devices if not device.connected})
    if silent:
        notes.append(f"  not connected: {', '.join(silent)}")
    notes += [f"  {m.job_id} in quarantine: {m.quarantine_reason}" for m in group.members if m.quarantine_reason]
    return notes


def _parts(
    group: orchestrator_pb2.Group,
) -> Iterable[tuple[orchestrator_pb2.GroupMember, orchestrator_pb2.NodePart]]:
    return ((member, part) for member in group.members for part in member.parts)


def _part_row(member: orchestrator_pb2.GroupMember, part: orchestrator_pb2.NodePart) -> tuple[str, ...]:
    processes = f"{part.processes} process{'' if part.processes == 1 else 'es'}"
    return member.job_id, part.node, _state(part.state), _size(part.bytes), processes


def _state(state: types_pb2.PartState.ValueType) -> str:
    return types_pb2.PartState.Name(state)[_STATE_PREFIX:].lower()


def _aligned(rows: Sequence[tuple[str, ...]], indent: int = 0) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))] if rows else []
    padded = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return [f"{' ' * indent}{line}".rstrip() for line in padded]


def _seconds(value: float) -> str:
    if value < 120:
        return f"{value:.0f} s"
    minutes, seconds = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min {seconds:02} s"


def _size(value: int) -> str:
    if value < 1 << 20:
        return f"{value / (1 << 10):.0f} KiB"
    return f"{value / (1 << 20):.0f} MiB" if value < 1 << 30 else f"{value / (1 << 30):.1f} GiB"
