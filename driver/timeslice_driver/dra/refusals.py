"""Why a claim is not prepared: one sentence with its numbers, and what to do. Pure.

The same words go to the claim's status, to events on the pod and the claim, to the log and to the kubelet.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum

from timeslice_driver.dra.device_names import counter_set
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.faults import amount


class Reason(StrEnum):
    """The reason's one word, for programs: conditions, events and metrics have it."""

    GROUP_CONFLICT = "GroupConflict"
    SAME_JOB_TWICE = "SameJobTwice"
    SEATS_TAKEN = "SeatsTaken"
    HOST_MEMORY = "HostMemory"  # of the node
    POD_MEMORY = "PodMemory"  # the pod's own limit, which is the same wherever it is
    UNKNOWN_DEVICE = "UnknownDevice"
    DEVICE_UNHEALTHY = "DeviceUnhealthy"
    DRAINING = "Draining"
    CONFIG_INVALID = "ConfigInvalid"
    JOB_UNKNOWN = "JobUnknown"
    NOT_ADMITTED = "NotAdmitted"
    STALE = "Stale"
    NODE_FAULT = "NodeFault"


class RefusedError(Exception):
    """A claim that is not prepared.

    Attributes:
        reason: in a word.
        message: in a sentence.
        mend: what to do.
    """

    def __init__(self, reason: Reason, message: str, mend: str = "") -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.mend = mend

    def __str__(self) -> str:
        return f"{self.message}; {self.mend}" if self.mend else self.message


_ELSEWHERE = "delete the pod so that the scheduler places its claim anew; the orchestrator does so after a while"


def group_conflict(gpu: Gpu, theirs: str, ours: str, *, claims: Iterable[object]) -> RefusedError:
    """Another group has the GPU."""
    message = f"{_label(gpu)} is in group {theirs} through {_listed(claims)}, so group {ours} cannot have it"
    return RefusedError(Reason.GROUP_CONFLICT, message, _ELSEWHERE)


def same_job_twice(gpu: Gpu, job: str, *, claims: Iterable[object]) -> RefusedError:
    """The job is on the GPU already."""
    message = f"job {job} has {_label(gpu)} already through {_listed(claims)}"
    return RefusedError(Reason.SAME_JOB_TWICE, message, f"let the claim ask for capacity of its job, or {_ELSEWHERE}")


def same_gpu_twice(gpu: Gpu, devices: Sequence[str]) -> RefusedError:
    """Two devices of one claim are one GPU."""
    message = f"{' and '.join(devices)} of the claim are one GPU, {_label(gpu)}"
    mend = "add the constraint matchAttribute: gpu.timeslice.dev/slot, and on lanes the capacity of the job"
    return RefusedError(Reason.SAME_JOB_TWICE, message, mend)


def seats_taken(gpu: Gpu, jobs: Collection[str], seats: int) -> RefusedError:
    """Too many jobs share the GPU."""
    message = f"{_label(gpu)} has {len(jobs)} jobs on its {seats} seats: {', '.join(sorted(jobs))}"
    return RefusedError(Reason.SEATS_TAKEN, message, f"raise seats of the group, or {_ELSEWHERE}")


def host_memory_full(gpu: Gpu, *, wanted: int, taken: int, share: int) -> RefusedError:
    """The snapshots of the jobs on the GPU do not fit into its share of host memory."""
    message = (
        f"a snapshot of {amount(wanted)} does not fit: {_label(gpu)} has {amount(share)} of host memory for "
        f"snapshots, of which {amount(taken)} are taken"
    )
    return RefusedError(Reason.HOST_MEMORY, message, f"ask for less hostMemory in the claim, or {_ELSEWHERE}")


def pod_memory(pod: str, place: str, *, limit: int, needed: int) -> RefusedError:
    """The pod may not take the memory into which it is parked."""
    message = f"{place} of pod {pod} may take {amount(limit)} of memory, but its snapshot is up to {amount(needed)}"
    mend = f"raise its memory limit to {amount(needed)} and what the program itself needs, or ask for less hostMemory"
    return RefusedError(Reason.POD_MEMORY, message, mend)


def unknown_device(device: str, known: Iterable[str]) -> RefusedError:
    """The allocation names a device that this node does not have."""
    message = f"this node has no device {device}; it has {', '.join(sorted(known)) or 'none'}"
    return RefusedError(Reason.UNKNOWN_DEVICE, message, _ELSEWHERE)


def unhealthy(gpu: Gpu, fault: str, mend: str = _ELSEWHERE) -> RefusedError:
    """The GPU cannot be used."""
    return RefusedError(Reason.DEVICE_UNHEALTHY, f"{_label(gpu)} cannot be used: {fault}", mend)


def draining(group: str) -> RefusedError:
    """The group takes no new claims."""
    message = f"group {group} is being deleted and takes no new claims"
    return RefusedError(Reason.DRAINING, message, "use another group, or create it again once it is gone")


def no_group(group: str, known: Sequence[str]) -> RefusedError:
    """There is no such group on this node."""
    message = f"there is no TimesliceGroup {group} for this node; there are {', '.join(known) or 'none'}"
    return RefusedError(Reason.DRAINING, message, "create it, or let its nodeSelector choose this node")


def not_admitted(message: str, mend: str) -> RefusedError:
    """The group is not for this job or namespace."""
    return RefusedError(Reason.NOT_ADMITTED, message, mend)


def name_taken(job: str, group: str, namespace: str) -> RefusedError:
    """The job's name is another namespace's."""
    message = f"the name {job} is taken in group {group} by a job of namespace {namespace}"
    return not_admitted(message, "call the job by another name")


def config_invalid(message: str, mend: str = "") -> RefusedError:
    """The claim's or class's configuration is wrong."""
    return RefusedError(Reason.CONFIG_INVALID, message, mend)


def job_unknown() -> RefusedError:
    """Nothing says whose job it is."""
    return RefusedError(
        Reason.JOB_UNKNOWN,
        "nothing says which job the claim is for",
        "set the label timeslice.dev/job in the claim template's spec.metadata.labels, or on the pod",
    )


def stale(seconds: float) -> RefusedError:
    """A late call for a claim that is unprepared."""
    message = f"the claim was unprepared {seconds:.0f} s ago, and no other pod has it since"
    return RefusedError(Reason.STALE, message, "this is a late call of the kubelet; nothing is to be done")


def node_fault(message: str, mend: str = "") -> RefusedError:
    """The node cannot do what it takes."""
    return RefusedError(Reason.NODE_FAULT, message, mend)


def _label(gpu: Gpu) -> str:
    return f"{counter_set(gpu.number)} ({gpu.uuid})"


def _listed(claims: Iterable[object]) -> str:
    return ", ".join(str(claim) for claim in claims)
