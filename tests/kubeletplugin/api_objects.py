"""What an API server does with objects, without HTTP: versions, history, selectors, patches, finalizers, status."""

from __future__ import annotations

import asyncio
import copy
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

Object = dict[str, Any]
WITH_STATUS = frozenset(
    {"pods", "nodes", "resourceclaims", "timeslicegroups", "customresourcedefinitions", "deployments", "daemonsets"}
)


@dataclass
class Refusal(Exception):  # noqa: N818  tests hand it over as a value
    """An answer that is an error; tests raise or return it in hooks."""

    status: int
    reason: str = ""
    message: str = "refused"
    causes: tuple[tuple[str, str], ...] = ()
    retry_after_s: int = 0

    def body(self) -> Object:
        causes = [{"field": name, "message": message} for name, message in self.causes]
        details: Object = {"causes": causes} if causes else {}
        if self.retry_after_s:
            details["retryAfterSeconds"] = self.retry_after_s
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "code": self.status,
            "reason": self.reason,
            "message": self.message,
            "details": details,
        }


@dataclass(frozen=True)
class Place:
    """Where objects are: a collection (of all namespaces if it names none), or one object in it."""

    group: str
    plural: str
    namespace: str = ""
    name: str = ""


@dataclass(frozen=True)
class Event:
    version: int
    place: Place
    old: Object | None
    new: Object | None


@dataclass
class Objects:
    """All objects of a cluster with their history."""

    stored: dict[Place, Object] = field(default_factory=dict)
    history: list[Event] = field(default_factory=list)
    version: int = 100
    oldest: int = 0  # versions below it have been forgotten
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    def find(self, place: Place) -> Object:
        if place not in self.stored:
            raise Refusal(404, "NotFound", f'{place.plural} "{place.name}" not found')
        return self.stored[place]

    def collection(self, place: Place, chosen: Callable[[Object], bool] = lambda item: True) -> list[Object]:
        return [item for at, item in self.stored.items() if within(at, place) and chosen(item)]

    async def create(self, place: Place, body: Object) -> Object:
        body = copy.deepcopy(body)
        metadata = body.setdefault("metadata", {})
        name = metadata.get("name") or f"{metadata.get('generateName', '')}{uuid.uuid4().hex[:5]}"
        place = Place(place.group, place.plural, place.namespace, name)
        if place in self.stored:
            raise Refusal(409, "AlreadyExists", f'{place.plural} "{name}" already exists')
        if metadata.get("resourceVersion"):
            raise Refusal(400, "BadRequest", "resourceVersion should not be set on objects to be created")
        metadata |= {"name": name, "uid": str(uuid.uuid4()), "generation": 1, "creationTimestamp": _now()}
        if place.namespace:
            metadata["namespace"] = place.namespace
        if place.plural in WITH_STATUS:
            body.pop("status", None)
        return await self._write(place, None, body)

    async def replace(self, place: Place, body: Object, *, subresource: str = "") -> Object:
        old = self.find(place)
        _demand_same(old, body, place)
        new = copy.deepcopy(body)
        if subresource == "status":
            new = old | {"status": new.get("status", {})}
        elif place.plural in WITH_STATUS:
            new.pop("status", None)
            new |= {"status": old["status"]} if "status" in old else {}
        for key in ("uid", "creationTimestamp", "deletionTimestamp", "resourceVersion", "generation", "namespace"):
            new["metadata"] = new["metadata"] | ({key: old["metadata"][key]} if key in old["metadata"] else {})
        if new == old:
            return old
        if new.get("spec") != old.get("spec"):
            new["metadata"]["generation"] = old["metadata"].get("generation", 1) + 1
        if new["metadata"].get("deletionTimestamp") and not new["metadata"].get("finalizers"):
            await self._write(place, old, None)
            return new
        return await self._write(place, old, new)

    async def patch(self, place: Place, body: Any, kind: str, *, subresource: str = "") -> Object:
        if "apply" in kind and place not in self.stored:
            return await self.create(place, body)
        old = self.find(place)
        new = json_patched(old, body) if "json-patch" in kind else merged(old, body)
        return await self.replace(place, new, subresource=subresource)

    async def delete(self, place: Place, preconditions: Object | None = None) -> Object:
        old = self.find(place)
        for key, value in (preconditions or {}).items():
            if old["metadata"][key] != value:
                raise Refusal(409, "Conflict", f"precondition failed: {key} is {old['metadata'][key]}, not {value}")
        if not old["metadata"].get("finalizers"):
            await self._write(place, old, None)
        elif "deletionTimestamp" not in old["metadata"]:
            new = copy.deepcopy(old)
            new["metadata"]["deletionTimestamp"] = _now()
            await self._write(place, old, new)
        return old

    async def _write(self, place: Place, old: Object | None, new: Object | None) -> Object:
        self.version += 1
        written = copy.deepcopy(new if new is not None else old)
        assert written is not None
        written["metadata"]["resourceVersion"] = str(self.version)
        if new is None:
            del self.stored[place]
        else:
            self.stored[place] = written
        self.history.append(Event(self.version, place, old, written if new is not None else None))
        await self.wake()
        return written

    async def wake(self) -> None:
        async with self.changed:
            self.changed.notify_all()


def watch_event(event: Event, place: Place, chosen: Callable[[Object], bool]) -> Object | None:
    """As a watch with that selector sees it: what it no longer chooses is deleted for it."""
    if not within(event.place, place):
        return None
    before = event.old is not None and chosen(event.old)
    after = event.new is not None and chosen(event.new)
    if after:
        return {"type": "MODIFIED" if before else "ADDED", "object": event.new}
    if not before:
        return None
    last = copy.deepcopy(event.old or {})
    last["metadata"]["resourceVersion"] = str(event.version)
    return {"type": "DELETED", "object": last}


def within(at: Place, place: Place) -> bool:
    return (at.group, at.plural) == (place.group, place.plural) and place.namespace in ("", at.namespace)


def selector(labels: str, fields: str) -> Callable[[Object], bool]:
    wanted = [_label(part) for part in re.split(r",(?![^(]*\))", labels) if part]
    wanted += [_field(part) for part in fields.split(",") if part]
    return lambda item: all(one(item) for one in wanted)


def _label(part: str) -> Callable[[Object], bool]:
    inside = re.fullmatch(r"\s*(\S+)\s+(in|notin)\s+\((.*)\)\s*", part)
    if inside:
        key, how, values = inside[1], inside[2], {value.strip() for value in inside[3].split(",")}
        return lambda item: (_labels(item).get(key) in values) == (how == "in")
    if "=" not in part:
        return lambda item: (part.lstrip("!") in _labels(item)) != part.startswith("!")
    key, unequal, value = _equation(part)
    return lambda item: (_labels(item).get(key) == value) != unequal


def _field(part: str) -> Callable[[Object], bool]:
    path, unequal, value = _equation(part)

    def chosen(item: Object) -> bool:
        found: Any = item
        for key in path.split("."):
            found = (found or {}).get(key)
        return ((found or "") == value) != unequal

    return chosen


def _equation(part: str) -> tuple[str, bool, str]:
    match = re.fullmatch(r"([^=!]+)(!?=)=?(.*)", part)
    if not match:
        raise Refusal(400, "BadRequest", f"unable to parse selector {part!r}")
    return match[1], match[2] == "!=", match[3]


def _labels(item: Object) -> dict[str, str]:
    return item["metadata"].get("labels") or {}


def merged(old: Any, change: Any) -> Any:
    """RFC 7396."""
    if not isinstance(change, dict):
        return change
    new = dict(old) if isinstance(old, dict) else {}
    for key, value in change.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new


def json_patched(old: Object, operations: list[Object]) -> Object:
    """RFC 6902: add, remove, replace, test."""
    new: Any = copy.deepcopy(old)
    for operation in operations:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in operation["path"].split("/")[1:]]
        target = new
        try:
            for part in way:
                target = target[int(part) if isinstance(target, list) else part]
            _operate(target, last, operation)
        except (KeyError, IndexError, TypeError) as error:
            raise Refusal(422, "Invalid", f"the server rejected our request: {operation}: {error!r}") from error
    assert isinstance(new, dict)
    return new


def _operate(target: Any, last: str, operation: Object) -> None:
    at: Any = last
    if isinstance(target, list):
        at = len(target) if last == "-" else int(last)
    if operation["op"] == "test":
        if target[at] != operation["value"]:
            raise Refusal(422, "Invalid", f"testing path {operation['path']} failed")
    elif operation["op"] == "remove":
        del target[at]
    elif operation["op"] == "add" and isinstance(target, list):
        target.insert(at, operation["value"])
    else:
        target[at] = operation["value"]


def _demand_same(old: Object, body: Object, place: Place) -> None:
    said = body.get("metadata", {})
    for key in ("resourceVersion", "uid"):
        if said.get(key) and said[key] != old["metadata"][key]:
            raise Refusal(409, "Conflict", f'{place.plural} "{place.name}" has been modified: {key}')


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
