"""ResourceClaims as far as they concern us: who asks a group for how many GPUs, and who has which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from timeslice_api.kinds.names import (
    CAPACITY_HOST_MEMORY,
    CAPACITY_JOB_PREFIX,
    DRIVER,
    LABEL_GROUP,
    LABEL_JOB,
    group_of_class,
)

from timeslice_orchestrator.kubernetes.raw import Raw, at, items, ours, whole


@dataclass(frozen=True, slots=True)
class Request:
    """What a claim asks of one group.

    Attributes:
        count: GPUs of one node; None: all that the node has.
        host_memory: bytes for each GPU; None: what the lane has as its default.
        job_keys: names of the job capacities that it asks for.
    """

    name: str
    group_id: str
    count: int | None
    host_memory: int | None
    job_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Use:
    """A device of ours that a claim has. `host_memory` is in bytes, `job_keys` the job capacities it consumes."""

    request: str
    pool: str
    device: str
    host_memory: int
    job_keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why the node did not prepare a claim that is allocated there."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodRef:
    """A pod of a claim: its owner, or one that it is reserved for."""

    uid: str
    name: str


@dataclass(frozen=True, slots=True)
class Claim:
    """What we keep of a claim that asks for devices of ours, or has some.

    Attributes:
        label_job, label_group: what people wrote; empty when they did not.
        config_job: the job in its configuration, the claim's own or else its class's, which wins over labels.
        created: as the API server writes times, so in their order.
    """

    uid: str
    namespace: str
    name: str
    created: str
    label_job: str
    label_group: str
    config_job: str
    requests: tuple[Request, ...]
    uses: tuple[Use, ...]
    pods: tuple[PodRef, ...]
    refusal: Refusal | None

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups that it asks, each once."""
        return tuple(dict.fromkeys(request.group_id for request in self.requests))

    def group_asked(self, request: str) -> str:
        """The group that the request of that name asks; empty when there is none such."""
        return next((one.group_id for one in self.requests if one.name == request), "")


def claim_of(raw: Raw) -> Claim | None:
    """What we keep of it; None when it has nothing to do with us."""
    requests = tuple(_requests(raw))
    uses = tuple(
        _use(result) for result in items(raw, "status", "allocation", "devices", "results") if _is_ours(result)
    )
    if not requests and not uses:
        return None
    metadata, labels = at(raw, "metadata"), at(raw, "metadata", "labels")
    return Claim(
        uid=metadata["uid"],
        namespace=metadata["namespace"],
        name=metadata["name"],
        created=metadata.get("creationTimestamp", ""),
        label_job=labels.get(LABEL_JOB, ""),
        label_group=labels.get(LABEL_GROUP, ""),
        config_job=_config_job(raw),
        requests=requests,
        uses=uses,
        pods=tuple(dict.fromkeys(_pods(raw))),
        refusal=_refusal(raw),
    )


def _is_ours(entry: Raw) -> bool:
    return bool(entry.get("driver") == DRIVER)


def _requests(raw: Raw) -> Iterator[Request]:
    for request in items(raw, "spec", "devices", "requests"):
        for exact in (at(request, "exactly"), *items(request, "firstAvailable")):
            group_id = group_of_class(exact.get("deviceClassName", ""))
            if group_id is not None:
                yield _request(request["name"], group_id, exact)


def _request(name: str, group_id: str, exact: Raw) -> Request:
    capacities = at(exact, "capacity", "requests")
    memory = capacities.get(CAPACITY_HOST_MEMORY)
    return Request(
        name=name,
        group_id=group_id,
        count=None if exact.get("allocationMode") == "All" else exact.get("count", 1),
        host_memory=None if memory is None else whole(memory),
        job_keys=_job_keys(capacities),
    )


def _use(result: Raw) -> Use:
    consumed = at(result, "consumedCapacity")
    return Use(
        request=result["request"].partition("/")[0],  # a sub-request is "request/sub"
        pool=result["pool"],
        device=result["device"],
        host_memory=whole(consumed.get(CAPACITY_HOST_MEMORY, 0)),
        job_keys=_job_keys(consumed),
    )


def _job_keys(capacities: Raw) -> tuple[str, ...]:
    """A result lists every capacity of the device, those with 0 included."""
    return tuple(key for key, value in capacities.items() if key.startswith(CAPACITY_JOB_PREFIX) and whole(value))


def _config_job(raw: Raw) -> str:
    allocated = items(raw, "status", "allocation", "devices", "config")
    in_order = sorted(allocated, key=lambda entry: bool(entry.get("source") == "FromClaim"))  # the class's come first
    named = [one.get("job", "") for one in ours(in_order or items(raw, "spec", "devices", "config"))]
    return next((job for job in reversed(named) if isinstance(job, str) and job), "")  # the last one wins


def _pods(raw: Raw) -> Iterator[PodRef]:
    for owner in items(raw, "metadata", "ownerReferences"):
        if owner.get("kind") == "Pod":
            yield PodRef(owner["uid"], owner["name"])
    for user in items(raw, "status", "reservedFor"):
        if user.get("resource") == "pods":
            yield PodRef(user["uid"], user["name"])


def _refusal(raw: Raw) -> Refusal | None:
    for device in items(raw, "status", "devices"):
        for condition in items(device, "conditions") if _is_ours(device) else ():
            if condition.get("type") == "Ready" and condition.get("status") == "False":
                return Refusal(condition.get("reason", ""), condition.get("message", ""))
    return None
