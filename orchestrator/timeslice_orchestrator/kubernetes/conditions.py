"""What the conditions of a TimesliceGroup say of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dra_kubeletplugin.apiserver import Object
from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import MAX_JOBS, class_name

from timeslice_orchestrator.core.model import Setback
from timeslice_orchestrator.kubernetes.claims import Claim
from timeslice_orchestrator.kubernetes.jobs import Jobs
from timeslice_orchestrator.kubernetes.lanes import Lane
from timeslice_orchestrator.kubernetes.raw import Raw
from timeslice_orchestrator.kubernetes.wording import listed, said, word

_MAX_NAMES = 5

READY = "Ready"
DRAINING = "Draining"
JOBS_FULL = "JobsFull"
LANES_UNAVAILABLE = "LanesUnavailable"
HAND_OFF_BLOCKED = "HandOffBlocked"
MINE = (READY, DRAINING, JOBS_FULL, LANES_UNAVAILABLE, HAND_OFF_BLOCKED)
"""The conditions that are told here. All but Ready are there only while they are true."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition, without its times."""

    type: str
    status: bool
    reason: str
    message: str


def invalid(problem: str) -> Condition:
    """Of a group that cannot be used as it is."""
    return Condition(READY, False, "Invalid", problem)


def conditions(
    group: TimesliceGroup,
    offered: Sequence[Lane],
    *,
    jobs: Jobs,
    allocated: Sequence[Claim],
    setbacks: Sequence[Setback] = (),
    class_taken: bool,
) -> tuple[Condition, ...]:
    """All that is to be said of a group.

    Args:
        group: as it is now.
        offered: its lanes, and slots.
        jobs: see `jobs_by_group`.
        allocated: the claims that have devices of it.
        setbacks: why those who wait for it are not served.
        class_taken: its DeviceClass is somebody else's.
    """
    found = [_ready(group, offered, class_taken=class_taken)]
    if group.deleted:
        found.append(_draining(allocated))
    if jobs.beyond:
        message = f"{MAX_JOBS} jobs have claims, the most there can be; {listed(jobs.beyond, _MAX_NAMES)} must wait"
        found.append(Condition(JOBS_FULL, True, "TooManyJobs", message))
    found.extend(_without_lanes(offered))
    found.extend(_blocked(setbacks))
    return tuple(found)


def applied(group: Raw, told: Iterable[Condition], now: str) -> list[Object]:
    """The conditions as the status has them; a time of transition stays where the status of a condition did."""
    before = {condition["type"]: condition for condition in group.get("status", {}).get("conditions", ())}
    generation = group["metadata"].get("generation", 0)
    return [_object(condition, before.get(condition.type, {}), generation, now) for condition in told]


def differ(group: Raw, told: Sequence[Condition]) -> bool:
    """Whether the status says something else than what is told."""
    there = {condition["type"]: condition for condition in group.get("status", {}).get("conditions", ())}
    before = {kind: there[kind] for kind in MINE if kind in there}
    generation = group["metadata"].get("generation", 0)
    return before != {
        condition.type: _object(condition, before.get(condition.type, {}), generation, "") for condition in told
    }


def _object(condition: Condition, before: Mapping[str, object], generation: int, now: str) -> Object:
    status = "True" if condition.status else "False"
    since = before.get("lastTransitionTime", now) if before.get("status") == status else now
    return {
        "type": condition.type,
        "status": status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": since,
        "observedGeneration": generation,
    }


def _ready(group: TimesliceGroup, offered: Sequence[Lane], *, class_taken: bool) -> Condition:
    if group.deleted:
        return Condition(READY, False, "BeingDeleted", "it takes no new claims")
    if class_taken:
        message = f"a DeviceClass {class_name(group.name)} is there that is not of this group; delete or rename it"
        return Condition(READY, False, "DeviceClassTaken", message)
    nodes = sorted({lane.pool for lane in offered})
    if not nodes:
        return Condition(READY, False, "NoNode", "no node publishes GPUs for it")
    gpus = len({(lane.pool, lane.gpu) for lane in offered})
    return Condition(READY, True, "Published", f"{gpus} GPU{'s' * (gpus != 1)} of {listed(nodes, _MAX_NAMES)}")


def _draining(allocated: Sequence[Claim]) -> Condition:
    names = [f"{claim.namespace}/{claim.name}" for claim in allocated]
    if not names:
        return Condition(DRAINING, True, "Drained", "no claim has a GPU of it any more")
    return Condition(DRAINING, True, "ClaimsAllocated", f"still allocated: {listed(names, _MAX_NAMES)}")


def _blocked(setbacks: Sequence[Setback]) -> Iterator[Condition]:
    if setbacks:
        texts = dict.fromkeys(said(setback.fault) for setback in setbacks[:_MAX_NAMES])
        yield Condition(HAND_OFF_BLOCKED, True, word(setbacks[0].fault), " | ".join(texts))


def _without_lanes(offered: Sequence[Lane]) -> Iterator[Condition]:
    if nodes := sorted({lane.pool for lane in offered if lane.slots}):
        who = f"{listed(nodes, _MAX_NAMES)} {'publish' if len(nodes) > 1 else 'publishes'}"
        message = (
            f"{who} slots: there, that a GPU is in one group only is checked when a pod starts, not by the scheduler"
        )
        yield Condition(LANES_UNAVAILABLE, True, "Slots", message)
