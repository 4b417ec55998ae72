"""Pods that have claims, or name a job, as far as they concern us."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from timeslice_api.kinds.names import LABEL_GROUP, LABEL_JOB

from timeslice_orchestrator.kubernetes.raw import Raw, at, items


@dataclass(frozen=True, slots=True)
class Pod:
    """What we keep of a pod.

    Attributes:
        node: empty until it is scheduled.
        pending: it has not started yet.
        unschedulable: the scheduler tried and found no place.
        controller: `Kind/name` of what would make a new one in its place; empty for a bare pod.
        claims: names of its claims that exist.
    """

    uid: str
    namespace: str
    name: str
    label_job: str
    label_group: str
    node: str
    pending: bool
    unschedulable: bool
    controller: str
    deleting: bool
    claims: tuple[str, ...]


def pod_of(raw: Raw) -> Pod | None:
    """What we keep of it; None when it has no claims and names no job."""
    metadata, labels, status = at(raw, "metadata"), at(raw, "metadata", "labels"), at(raw, "status")
    if not items(raw, "spec", "resourceClaims") and LABEL_JOB not in labels:
        return None
    return Pod(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        label_job=labels.get(LABEL_JOB, ""),
        label_group=labels.get(LABEL_GROUP, ""),
        node=at(raw, "spec").get("nodeName", ""),
        pending=status.get("phase", "Pending") == "Pending",
        unschedulable=any(_is_unschedulable(condition) for condition in items(status, "conditions")),
        controller=_controller(raw),
        deleting="deletionTimestamp" in metadata,
        claims=tuple(_claims(raw)),
    )


def _is_unschedulable(condition: Raw) -> bool:
    found = (condition.get("type"), condition.get("status"), condition.get("reason"))
    return found == ("PodScheduled", "False", "Unschedulable")


def _controller(raw: Raw) -> str:
    owners = items(raw, "metadata", "ownerReferences")
    return next((f"{owner['kind']}/{owner['name']}" for owner in owners if owner.get("controller")), "")


def _claims(raw: Raw) -> Iterator[str]:
    for named in (*items(raw, "spec", "resourceClaims"), *items(raw, "status", "resourceClaimStatuses")):
        if named.get("resourceClaimName"):
            yield named["resourceClaimName"]
