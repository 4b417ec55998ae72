"""Why a claim is not allocated, in words for the person who waits for the pod. The scheduler says only "cannot allocate
all claims"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import LABEL_JOB, MAX_JOBS, class_name

from timeslice_orchestrator.kubernetes.claims import Claim, Request
from timeslice_orchestrator.kubernetes.lanes import Lane
from timeslice_orchestrator.kubernetes.occupancy import Occupancy
from timeslice_orchestrator.kubernetes.verdicts import Asked, Obstacle, obstacle
from timeslice_orchestrator.kubernetes.wording import listed

_MAX_NAMES = 8


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a claim waits. `passing`: it may be over in a moment, so is worth a word only when it stays."""

    text: str
    passing: bool = False


@dataclass(frozen=True)
class World:
    """What a reason is drawn from.

    Attributes:
        groups: by name.
        selected: for a group that no node publishes, names of the nodes that its nodeSelector chooses.
    """

    groups: Mapping[str, TimesliceGroup]
    occupancy: Occupancy
    selected: Mapping[str, Sequence[str]]


def why_pending(claim: Claim, world: World) -> Reason:
    """Why the claim is not allocated; of several reasons the first that a person has to mend."""
    for group_id in claim.groups:
        if text := barred(claim, group_id, world):
            return Reason(text)
    reasons = [_no_room(claim, group_id, world) for group_id in claim.groups]
    return next((reason for reason in reasons if not reason.passing), reasons[0])


def barred(claim: Claim, group_id: str, world: World) -> str:
    """Why the claim cannot have a GPU of the group however many are free; empty when it can."""
    group = world.groups.get(group_id)
    if group is None:
        return f"there is no TimesliceGroup {group_id}, which DeviceClass {class_name(group_id)} is of"
    if not group.spec.admits_namespace(claim.namespace):
        admitted = listed(sorted(group.spec.namespaces or ()), _MAX_NAMES) if group.spec.namespaces else "none"
        return f"group {group_id}: namespace {claim.namespace} is not admitted (admitted: {admitted})"
    if group.deleted:
        return f"group {group_id} is being deleted and takes no new claims"
    if not (job := world.occupancy.job_of(claim)):
        where = "the metadata.labels of the claim template's spec, or on the pod"
        return f"group {group_id}: label {LABEL_JOB} is missing; put it into {where}"
    return _job_barred(group, job)


def _job_barred(group: TimesliceGroup, job: str) -> str:
    if not group.spec.admits_job(job):
        admitted = listed(sorted(group.spec.jobs or ()), _MAX_NAMES) if group.spec.jobs else "none"
        return f"group {group.name}: job {job} is not in the group's list (admitted: {admitted})"
    if job not in group.jobs and len(group.jobs) >= MAX_JOBS:
        return (
            f"group {group.name}: it has {len(group.jobs)} jobs already, the most there can be; job {job} has to wait"
        )
    return ""


def _no_room(claim: Claim, group_id: str, world: World) -> Reason:
    offered = world.occupancy.offered(group_id)
    if not offered:
        selected = world.selected.get(group_id, ())
        return Reason(_nobody_publishes(world.groups[group_id], selected), passing=bool(selected))
    requests = [request for request in claim.requests if request.group_id == group_id]
    return _Search(claim, group_id, requests, world.occupancy).reason(offered)


def _nobody_publishes(group: TimesliceGroup, selected: Sequence[str]) -> str:
    wanted = ",".join(f"{key}={value}" for key, value in sorted(group.spec.node_selector.items()))
    chooser = f"nodeSelector {wanted} matches" if wanted else "the cluster has"
    if not selected:
        return f"no node publishes group {group.name} ({chooser} {'none' if wanted else 'no nodes'})"
    return (
        f"no node publishes group {group.name} ({chooser} {listed(sorted(selected), _MAX_NAMES)}: "
        "does the driver's pod run there, and does it find GPUs?)"
    )


class _Search:
    """Looks for GPUs for what one claim asks of one group."""

    def __init__(self, claim: Claim, group_id: str, requests: Sequence[Request], occupancy: Occupancy) -> None:
        self._group_id = group_id
        self._occupancy = occupancy
        self._everything = any(request.count is None for request in requests)
        self._need = sum(request.count or 0 for request in requests) or 1
        memory = max((request.host_memory for request in requests if request.host_memory is not None), default=None)
        self._asked = Asked(group_id, occupancy.job_of(claim), memory)

    def reason(self, offered: Sequence[Lane]) -> Reason:
        """Why the GPUs on offer do not do."""
        found = dict(self._verdicts(offered))
        free = _per_node(gpu for gpu, what in found.items() if what is None)
        every = _per_node(found)
        if fitting := sorted(node for node in every if free.get(node, 0) >= self._wanted(every[node])):
            return self._room_on(fitting)
        if not self._everything and self._need > (most := max(every.values())):
            return Reason(f"group {self._group_id}: {_asked(self._need)}, and no node has more than {most}")
        text = "; ".join([self._shortage(max(free.values(), default=0)), *_clauses(found)])
        return Reason(text, passing=any(what.passing for what in found.values() if what is not None))

    def _wanted(self, there: int) -> int:
        return there if self._everything else self._need

    def _verdicts(self, offered: Sequence[Lane]) -> Iterator[tuple[tuple[str, str], Obstacle | None]]:
        """By (node, GPU). Of a GPU's slots the free one counts."""
        seen: dict[tuple[str, str], Obstacle | None] = {}
        for lane in offered:
            gpu = (lane.pool, lane.gpu)
            if gpu not in seen or seen[gpu] is not None:
                seen[gpu] = obstacle(lane, self._asked, self._occupancy)
        yield from seen.items()

    def _room_on(self, nodes: Sequence[str]) -> Reason:
        room = f"group {self._group_id}: {listed(nodes, 4)} {'have' if len(nodes) > 1 else 'has'} room"
        hint = "look at the pod's nodeSelector, affinity, tolerations, CPU and memory"
        return Reason(f"{room}, so something else keeps the pod off: {hint}", passing=True)

    def _shortage(self, most_free: int) -> str:
        if not most_free:
            return f"group {self._group_id}: no free GPU"
        wanted = "all GPUs of a node are asked" if self._everything else _asked(self._need)
        return f"group {self._group_id}: {wanted}, and no node has more than {most_free} free"


def _asked(count: int) -> str:
    return f"{count} GPUs of one node are asked" if count > 1 else "one GPU is asked"


def _per_node(gpus: Iterator[tuple[str, str]] | Mapping[tuple[str, str], object]) -> dict[str, int]:
    count: dict[str, int] = {}
    for node, _ in gpus:
        count[node] = count.get(node, 0) + 1
    return count


def _clauses(found: Mapping[tuple[str, str], Obstacle | None]) -> Iterator[str]:
    """One for each obstacle, with all GPUs that it keeps away; the commonest first."""
    kept: dict[Obstacle, list[tuple[str, str]]] = {}
    for gpu, what in found.items():
        if what is not None:
            kept.setdefault(what, []).append(gpu)
    for what, gpus in sorted(kept.items(), key=lambda entry: (-len(entry[1]), min(entry[1]))):
        yield what.of(gpus)
