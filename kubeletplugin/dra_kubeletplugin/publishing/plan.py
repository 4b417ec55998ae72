"""Which slices of a pool to delete, to change and to create. Pure.

The rules are those of the Go library (k8s.io/dynamic-resource-allocation/resourceslice), so a driver may move from one
to the other: a slice has its place in the pool as the first part of its name, since the scheduler takes slices in the
order of their names; the generation rises when more than one object has to be written for a consistent pool, for the
scheduler ignores a pool whose newest generation is not complete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass

from dra_kubeletplugin.apiserver import SLICES, Object
from dra_kubeletplugin.pools import Pool, Slice
from dra_kubeletplugin.publishing.likeness import alike, with_times

_DIGITS = 5


@dataclass(frozen=True)
class Owner:
    """Whose slices they are."""

    driver: str
    node: str


@dataclass(frozen=True)
class Plan:
    """In this order: deletions, then changes, then creations. The last two by place in the pool."""

    delete: tuple[Object, ...]
    update: tuple[tuple[int, Object], ...]
    create: tuple[tuple[int, Object], ...]
    generation: int


def plan(owner: Owner, pool: str, wanted: Sequence[Object], *, existing: Iterable[Object], least: int) -> Plan:
    """What leads from the existing slices of a pool to the wanted specs.

    Args:
        owner: of the slices.
        pool: its name.
        wanted: `contents` of the pool, or what the server makes of them.
        existing: all slices of the pool, of any generation.
        least: a generation that was used before, though its slices may be gone.
    """
    existing = sorted(existing, key=lambda item: item["metadata"]["name"])
    newest = max([least, *(_generation(item) for item in existing)])
    placed = _placed(existing, newest, len(wanted))
    kept = {item["metadata"]["uid"] for item in placed.values()}
    differing = [place for place, item in placed.items() if not _same(item, wanted, place)]
    rises = len(placed) < len(wanted) or len(differing) > 1
    generation = newest + 1 if rises else newest
    header = {"name": pool, "generation": generation, "resourceSliceCount": len(wanted)}
    return Plan(
        delete=tuple(item for item in existing if item["metadata"]["uid"] not in kept),
        update=tuple(
            (place, _changed(placed[place], wanted[place], header))
            for place in sorted(placed)
            if rises or place in differing
        ),
        create=tuple(
            (place, _new(owner, content, header, place)) for place, content in enumerate(wanted) if place not in placed
        ),
        generation=generation,
    )


def contents(pool: Pool) -> list[Object]:
    """The part of the specs of a pool's slices that the driver decides about; a copy."""
    return [deepcopy(_content(part)) for part in pool.slices or (Slice(),)]


def content_of(item: Object) -> Object:
    """That part of a stored slice, with whatever else the server says about devices."""
    return {key: value for key, value in item["spec"].items() if key not in ("driver", "nodeName", "pool")}


def _content(part: Slice) -> Object:
    content = {"devices": list(part.devices), "sharedCounters": list(part.shared_counters)}
    return {key: value for key, value in content.items() if value}


def _placed(existing: Sequence[Object], newest: int, count: int) -> dict[int, Object]:
    """The slices that can stay, by their place in the pool."""
    placed: dict[int, Object] = {}
    for item in existing:
        place = _place(item["metadata"]["name"])
        if _generation(item) == newest and place is not None and place < count and not _going(item):
            placed.setdefault(place, item)
    return placed


def _place(name: str) -> int | None:
    found = re.match(rf"([0-9a-f]{{{_DIGITS}}})-", name)
    return int(found[1], 16) if found else None


def _going(item: Object) -> bool:
    return bool(item["metadata"].get("deletionTimestamp"))


def _generation(item: Object) -> int:
    return int(item["spec"]["pool"].get("generation") or 0)


def _same(item: Object, wanted: Sequence[Object], place: int) -> bool:
    count = item["spec"]["pool"].get("resourceSliceCount")
    return count == len(wanted) and alike(wanted[place], content_of(item))


def _changed(item: Object, content: Object, header: Object) -> Object:
    spec = {key: item["spec"][key] for key in ("driver", "nodeName") if key in item["spec"]}
    return item | {"spec": spec | {"pool": header} | with_times(content, content_of(item))}


def _new(owner: Owner, content: Object, header: Object, place: int) -> Object:
    return {
        "apiVersion": SLICES.api_version,
        "kind": "ResourceSlice",
        "metadata": {"generateName": f"{place:0{_DIGITS}x}-{owner.driver}-{owner.node}-"},
        "spec": {"driver": owner.driver, "nodeName": owner.node, "pool": header} | content,
    }
