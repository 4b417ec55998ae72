"""The last line: whether a claim may come onto its GPUs beside the claims that are prepared there. Pure.

With lanes the scheduler has seen to all of this; but pods deleted by force, defects of schedulers and slots mode give
claims that it would not have allowed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from dra_kubeletplugin import Claim
from timeslice_api.kinds import TimesliceGroup

from timeslice_driver.dra import refusals
from timeslice_driver.dra.assignment import Assignment
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.records import ClaimRecord


@dataclass(frozen=True)
class Rules:
    """What a group allows on a GPU: jobs at once, and bytes of host memory for their snapshots together."""

    seats: int
    host_memory: int


def check_admission(
    claim: Claim, assignment: Assignment, groups: Mapping[str, TimesliceGroup], labels: Mapping[str, str]
) -> None:
    """The group is there for this claim.

    Args:
        claim: the claim.
        assignment: its job and group.
        groups: all groups, by name.
        labels: of the node.

    Raises:
        RefusedError: Draining or NotAdmitted.
    """
    group = groups.get(assignment.group)
    if group is None or not group.spec.selects(labels):
        here = sorted(name for name, each in groups.items() if each.spec.selects(labels))
        raise refusals.no_group(assignment.group, here)
    if group.deleted and not _earlier(_allocated_at(claim), group.metadata.deletion_timestamp or ""):
        raise refusals.draining(group.name)
    if not group.spec.admits_namespace(claim.ref.namespace):
        message = f"group {group.name} is not for namespace {claim.ref.namespace}"
        raise refusals.not_admitted(message, f"it admits {', '.join(group.spec.namespaces or ())}")
    if not group.spec.admits_job(assignment.job):
        message = f"group {group.name} is not for job {assignment.job}"
        raise refusals.not_admitted(message, f"it admits {', '.join(group.spec.jobs or ())}")


def _allocated_at(claim: Claim) -> str:
    return str(claim.raw["status"]["allocation"].get("allocationTimestamp", ""))


def _earlier(allocated: str, deleted: str) -> bool:
    """RFC 3339 times of one server compare as text. An old server tells no time of allocation."""
    return not allocated or allocated <= deleted


def check_neighbours(claim: ClaimRecord, others: Sequence[ClaimRecord], gpus: Mapping[str, Gpu], rules: Rules) -> None:
    """Its job is of no other namespace; no other group on its GPUs, its job on none of them twice, a seat on each, and
    room for the snapshots.

    Args:
        claim: to be prepared.
        others: that hold GPUs of this node; the claim itself is passed over.
        gpus: by UUID.
        rules: of its group.

    Raises:
        RefusedError: NotAdmitted, GroupConflict, SameJobTwice, SeatsTaken or HostMemory.
    """
    _check_name(claim, others)
    for uuid in claim.uuids:
        gpu = gpus[uuid]
        mine = [device for device in claim.devices if device.uuid == uuid]
        if len(mine) > 1:
            raise refusals.same_gpu_twice(gpu, [device.device for device in mine])
        _check_gpu(claim, gpu, [other for other in others if other.uid != claim.uid and uuid in other.uuids], rules)


def _check_name(claim: ClaimRecord, others: Sequence[ClaimRecord]) -> None:
    """The claims of one job in a group are one part, which is parked and restored as one. A label is its writer's own
    word, so of two namespaces that use one name the first has it."""
    for other in others:
        if (other.job, other.group) == (claim.job, claim.group) and other.namespace != claim.namespace:
            raise refusals.name_taken(claim.job, claim.group, other.namespace)


def _check_gpu(claim: ClaimRecord, gpu: Gpu, there: Sequence[ClaimRecord], rules: Rules) -> None:
    if strangers := [other for other in there if other.group != claim.group]:
        raise refusals.group_conflict(gpu, strangers[0].group, claim.group, claims=strangers)
    if twins := [other for other in there if other.job == claim.job]:
        raise refusals.same_job_twice(gpu, claim.job, claims=twins)
    if len(there) >= rules.seats:
        raise refusals.seats_taken(gpu, {other.job for other in there}, rules.seats)
    taken, wanted = _memory(there, gpu), _memory([claim], gpu)
    if taken + wanted > rules.host_memory:
        raise refusals.host_memory_full(gpu, wanted=wanted, taken=taken, share=rules.host_memory)


def _memory(claims: Iterable[ClaimRecord], gpu: Gpu) -> int:
    return sum(device.host_memory for claim in claims for device in claim.devices if device.uuid == gpu.uuid)
