"""What the core says, as messages."""

from __future__ import annotations

from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import types_pb2

from timeslice_orchestrator.core.effects import Granted
from timeslice_orchestrator.core.model import (
    GroupTotals,
    GroupView,
    HolderView,
    Lease,
    MemberView,
    PartState,
    PartView,
    WaiterView,
    WaitingView,
)

PART_STATES = {
    PartState.EMPTY: types_pb2.PART_STATE_EMPTY,
    PartState.RUNNING: types_pb2.PART_STATE_RUNNING,
    PartState.LOCKED: types_pb2.PART_STATE_LOCKED,
    PartState.PARKED: types_pb2.PART_STATE_PARKED,
    PartState.FAILED: types_pb2.PART_STATE_FAILED,
}


def granted(effect: Granted) -> pb.AcquireResponse:
    """The answer to an Acquire that has its lease."""
    return pb.AcquireResponse(lease=_lease(effect.lease), waited_s=effect.waited_s, restored=effect.restored)


def _lease(lease: Lease) -> types_pb2.Lease:
    return types_pb2.Lease(
        lease_id=lease.lease_id,
        job_id=lease.job_id,
        group_ids=lease.group_ids,
        fencing_token=lease.token,
        ttl_s=lease.ttl_s,
    )


def waiting(view: WaitingView) -> pb.AcquireResponse:
    """The answer to an Acquire that is still in the queue."""
    place = pb.Waiting(position=view.position, holder_job_id=view.holder_job_id, held_s=view.held_s, reason=view.reason)
    return pb.AcquireResponse(waiting=place, waited_s=view.waited_s)


def group(view: GroupView, *, ids: bool = True) -> pb.Group:
    """A group as people see it; without `ids` as jobs do, whom the ids of others' requests do not concern."""
    return pb.Group(
        group_id=view.group_id,
        devices=[
            pb.GroupDevice(device_id=device, node=node, connected=connected) for device, node, connected in view.devices
        ],
        members=[_member(member) for member in view.members],
        holders=[_holder(holder) for holder in view.holders],
        waiters=[_waiter(waiter, ids=ids) for waiter in view.waiters],
        switching_to_job_id=view.switching_to,
        under_way=view.under_way,
        draining=view.draining,
        blocked_reason=view.blocked_reason,
        handoffs=view.totals.handoffs,
        duty_cycle=view.duty_cycle,
        totals=_totals(view.totals),
    )


def _member(member: MemberView) -> pb.GroupMember:
    return pb.GroupMember(
        job_id=member.job_id,
        parts=[_part(part) for part in member.parts],
        quarantine_reason=member.quarantine_reason,
    )


def _part(part: PartView) -> pb.NodePart:
    return pb.NodePart(node=part.node, state=PART_STATES[part.state], bytes=part.bytes_, processes=part.processes)


def _holder(holder: HolderView) -> pb.GroupHolder:
    return pb.GroupHolder(job_id=holder.job_id, leases=holder.leases, held_s=holder.held_s, fencing_token=holder.token)


def _waiter(waiter: WaiterView, *, ids: bool) -> pb.GroupWaiter:
    return pb.GroupWaiter(
        job_id=waiter.job_id,
        request_id=waiter.request_id if ids else "",
        position=waiter.position,
        waited_s=waiter.waited_s,
        holder=waiter.holder,
    )


def _totals(totals: GroupTotals) -> pb.GroupTotals:
    return pb.GroupTotals(
        grants=totals.grants,
        bytes_parked=totals.bytes_parked,
        bytes_restored=totals.bytes_restored,
        seconds=types_pb2.Timings(
            lock_s=totals.lock_s,
            checkpoint_s=totals.checkpoint_s,
            restore_s=totals.restore_s,
            unlock_s=totals.unlock_s,
        ),
        handoff_s=totals.handoff_s,
    )
