"""From a claim's allocation to the record of it that prepare wants to make. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dra_kubeletplugin import AllocatedDevice, Claim
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import TimesliceGroup, bytes_of
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra import content, device_names, refusals
from timeslice_driver.dra.assignment import Assignment, assign
from timeslice_driver.dra.checks import Rules, check_admission, check_neighbours
from timeslice_driver.dra.gpus import Gpu, by_number
from timeslice_driver.dra.pod_memory import check_pod_memory
from timeslice_driver.dra.records import ClaimRecord, HeldDevice
from timeslice_driver.dra.shared_claims import shareable


@dataclass(frozen=True)
class NodeView:
    """What prepare goes by, at one moment.

    Attributes:
        gpus: of the node, with their faults.
        groups: all TimesliceGroups by name; None as long as the API server has not told them.
        labels: of the node.
        host_memory: for snapshots in all (bytes).
    """

    gpus: tuple[Gpu, ...] = ()
    groups: Mapping[str, TimesliceGroup] | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    host_memory: int = 0


def candidate(claim: Claim, view: NodeView, others: Sequence[ClaimRecord]) -> ClaimRecord:
    """The record of a claim that may be prepared, in state `started`.

    Args:
        claim: with at least one share of ours, and with its pods.
        view: of the node.
        others: claims that hold GPUs here.

    Raises:
        RefusedError: it may not.
    """
    if any(share.admin_access for share in claim.results):
        raise refusals.config_invalid("adminAccess is not for time-sliced GPUs", "leave it out of the claim")
    devices = held_devices(claim, view)
    assignment = assign(claim, [pod["metadata"].get("labels") or {} for pod in claim.pod_objects])
    made = record_of(claim, assignment, devices)
    if view.groups is not None:
        check_admission(claim, assignment, view.groups, view.labels)
    gpus = {gpu.uuid: gpu for gpu in view.gpus}
    for uuid in made.uuids:
        if gpus[uuid].fault:
            raise refusals.unhealthy(gpus[uuid], gpus[uuid].fault)
    check_neighbours(made, others, gpus, _rules(made.group, view))
    for pod in claim.pod_objects:
        _check_pod(pod, made)
    return made


def record_of(claim: Claim, assignment: Assignment, devices: tuple[HeldDevice, ...]) -> ClaimRecord:
    """The record of a claim in state `started`."""
    return ClaimRecord(
        claim.ref.uid,
        claim.ref.namespace,
        claim.ref.name,
        "started",
        assignment.job,
        assignment.group,
        devices,
        pods={pod.uid: pod.name for pod in claim.pods},
        shared=shareable(claim),
    )


def held_devices(claim: Claim, view: NodeView) -> tuple[HeldDevice, ...]:
    """The claim's shares with the GPUs behind them.

    Raises:
        RefusedError: UnknownDevice.
    """
    return tuple(_held(share, view) for share in claim.results)


def _held(share: AllocatedDevice, view: NodeView) -> HeldDevice:
    name, gpus = device_names.parse(share.device), by_number(view.gpus)
    gpu = gpus.get(name.number) if name else None
    if gpu is None:
        raise refusals.unknown_device(share.device, map(device_names.counter_set, gpus))
    default = content.default_host_memory(gpu, content.host_memory_share(view.host_memory, view.gpus))
    said = share.consumed_capacity.get(kinds.CAPACITY_HOST_MEMORY)
    memory = default if said is None else bytes_of(said, "consumedCapacity.hostMemory")
    return HeldDevice(share.base_request, share.pool, share.device, gpu.uuid, share.share_id, memory)


def _rules(group_id: str, view: NodeView) -> Rules:
    """As they are published; a group that is not known (yet) has the most that any may have."""
    group = (view.groups or {}).get(group_id)
    wanted = group.spec.host_memory_bytes if group else None
    share = content.host_memory_share(view.host_memory, view.gpus, wanted=wanted)
    return Rules(group.spec.seats if group else kinds.MAX_SEATS, share)


def _check_pod(pod: Mapping[str, Any], claim: ClaimRecord) -> None:
    try:
        check_pod_memory(pod, claim)
    except ConfigError as error:
        raise refusals.config_invalid(f"pod {pod['metadata']['name']}: {error.message}", error.hint) from error
