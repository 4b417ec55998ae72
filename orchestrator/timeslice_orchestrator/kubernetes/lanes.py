"""What the nodes publish: a lane for each GPU and group, or slots."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from timeslice_api.kinds.names import (
    ATTRIBUTE_GROUP,
    ATTRIBUTE_MODE,
    ATTRIBUTE_UUID,
    CAPACITY_HOST_MEMORY,
    CAPACITY_JOB_PREFIX,
    CAPACITY_SEATS,
    DRIVER,
    MODE_SLOTS,
)

from timeslice_orchestrator.kubernetes.raw import Raw, at, items, whole


@dataclass(frozen=True, slots=True)
class Lane:
    """One device of a slice.

    Attributes:
        gpu: for people and unique on the node: the device's name without its group or slot.
        group_id: empty for a slot, which every group may take.
        taints: keys of those that keep new claims away.
        host_memory, host_memory_default: bytes for all snapshots of the GPU, and what a claim takes that asks for none.
        job_keys: names of the job capacities.
    """

    pool: str
    device: str
    gpu: str
    uuid: str
    group_id: str
    slots: bool
    taints: tuple[str, ...]
    seats: int
    host_memory: int
    host_memory_default: int
    job_keys: frozenset[str]


@dataclass(frozen=True, slots=True)
class Slice:
    """One ResourceSlice of our driver."""

    uid: str
    pool: str
    generation: int
    lanes: tuple[Lane, ...]


def slice_of(raw: Raw) -> Slice | None:
    """The slice; None when it is of another driver."""
    spec = at(raw, "spec")
    if spec.get("driver") != DRIVER:
        return None
    pool = at(spec, "pool")
    lanes = tuple(_lane(pool["name"], device) for device in items(spec, "devices"))
    return Slice(raw["metadata"]["uid"], pool["name"], pool.get("generation", 0), lanes)


def current(slices: Iterable[Slice]) -> list[Lane]:
    """The devices of each pool's newest generation; the scheduler ignores older ones, which are on their way out."""
    slices = list(slices)
    newest: dict[str, int] = {}
    for one in slices:
        newest[one.pool] = max(newest.get(one.pool, 0), one.generation)
    return [lane for one in slices if one.generation == newest[one.pool] for lane in one.lanes]


def gpu_and_rest(device: str) -> tuple[str, str]:
    """The parts of a device's name: `gpu-0` and the group (or `slot-1`)."""
    first, _, rest = device.partition("-")
    number, _, rest = rest.partition("-")
    return f"{first}-{number}", rest


def _lane(pool: str, device: Raw) -> Lane:
    attributes, capacity = at(device, "attributes"), at(device, "capacity")
    memory = at(capacity, CAPACITY_HOST_MEMORY)
    group_id = at(attributes, ATTRIBUTE_GROUP).get("string", "")
    taints = (taint["key"] for taint in items(device, "taints") if taint.get("effect") != "None")
    return Lane(
        pool=pool,
        device=device["name"],
        gpu=gpu_and_rest(device["name"])[0],
        uuid=at(attributes, ATTRIBUTE_UUID).get("string", ""),
        group_id=group_id,
        slots=at(attributes, ATTRIBUTE_MODE).get("string") == MODE_SLOTS,
        taints=tuple(taints),
        seats=whole(at(capacity, CAPACITY_SEATS).get("value", 0)),
        host_memory=whole(memory.get("value", 0)),
        host_memory_default=whole(at(memory, "requestPolicy").get("default", 0)),
        job_keys=frozenset(key for key in capacity if key.startswith(CAPACITY_JOB_PREFIX)),
    )
