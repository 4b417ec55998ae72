"""The store on Kubernetes: the records of each group are in the status of its TimesliceGroup.

A batch becomes one merge patch for each group that it touches, all at once, each with the resourceVersion that it
builds on. It is durable when all are; `takeover` says why a half of one does no harm.

Two leaders cannot both write. A new one writes its epoch to every group before it reads what to go on with, so whatever
a former one still has in mind meets a conflict, then the higher epoch, and is deposed: nothing of it gets out. Groups
that are made later carry no records but those of the present leader; that a former one adds none to them is left to
the clock (`Leadership.held`), which it asks before it takes or lets out anything.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any

from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, Leadership, NotLeadingError, Object
from timeslice_api.errors import ConfigError, QueueFull, StoreFailed

from timeslice_orchestrator.core.events import AcquireRequested
from timeslice_orchestrator.core.model import (
    CounterRecord,
    GroupId,
    NodeName,
    Record,
    RecordKey,
    RequestRecord,
)
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.group_object import DeposedError, GroupObject, GroupVanishedError
from timeslice_orchestrator.kubernetes.records import MAX_BYTES, SECTIONS, GroupRecords, decoded, epoch_of, groups_of
from timeslice_orchestrator.kubernetes.takeover import reconciled
from timeslice_orchestrator.store import NodeRecord, StoredRecord
from timeslice_orchestrator.store.codec import row_key

_log = logging.getLogger(__name__)

_AT_ONCE = 32  # requests under way
_LOGGED = 2_000  # characters of records that nobody can read

Shown = Mapping[str, Any]  # fields of the status that are for people


class _Group:
    """A group's object and what has to be in it."""

    def __init__(self, object_: GroupObject) -> None:
        self.object = object_
        self.records = GroupRecords()
        self.devices: dict[NodeName, tuple[str, ...]] = {}
        self.shown: Shown = {}
        self.counters = CounterRecord()  # of the last change of its records

    def set_devices(self, node: NodeName, devices: tuple[str, ...]) -> bool:
        """Which of a node's devices are in the group. True when they are others than before."""
        if self.devices.get(node, ()) == devices:
            return False
        self.devices[node] = devices
        if not devices:
            del self.devices[node]
        return True

    def status(self, epoch: int) -> dict[str, Any]:
        """The fields of the status that are ours."""
        devices = [{"node": node, "device": device} for node in sorted(self.devices) for device in self.devices[node]]
        document = self.records.document(epoch, self.counters)
        return {**self.shown, "records": document, "devices": devices, "deviceCount": len(devices)}

    def is_as_seen(self) -> bool:
        """Whether the object keeps what it has to, whoever wrote it."""
        seen = (self.object.seen or {}).get("records") or {}
        wanted = self.records.document(0, CounterRecord())
        return not any((seen.get(section) or {}) != wanted[section] for section in SECTIONS)


class StatusStore:
    """A `Store`; use `StatusStore.open`.

    Attributes:
        records: what to go on with.
        deposed: done, with the reason, when a later leader was met; nothing is written from then on.
        freshen: says what people are to see of a group that is about to be written; None: what they saw before.
    """

    def __init__(self, api: ApiServer, leadership: Leadership) -> None:
        self._api = api
        self._leadership = leadership
        self._groups: dict[GroupId, _Group] = {}
        self._homes: dict[RecordKey, GroupId] = {}
        self._homeless: dict[RecordKey, Record] = {}
        self._nodes: dict[NodeName, NodeRecord] = {}
        self._counters = CounterRecord()
        self._unwritten: dict[GroupId, None] = {}  # whose object may lack something
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self.freshen: Callable[[GroupId], Shown | None] = _as_before
        self.records: list[StoredRecord] = []
        self.deposed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(cls, api: ApiServer, leadership: Leadership) -> StatusStore:
        """Shuts former leaders out of every group, and reads what they have left.

        Raises:
            StoreFailed: the groups cannot be read or written.
            ConfigError: a newer version of timeslice wrote the records.
        """
        store = cls(api, leadership)
        try:
            found, _ = await api.list(GROUPS)
            newest = max((epoch_of(_records(raw)) for raw in found), default=0)
            await leadership.raise_epoch(newest)
        except (ApiServerError, NotLeadingError) as error:
            raise StoreFailed(f"cannot read the groups: {error}") from error
        await store._take_over(found)
        return store

    @property
    def epoch(self) -> int:
        """Of this leader; in every group that it has written to."""
        return self._leadership.epoch

    def write(self, saves: Iterable[StoredRecord], drops: Iterable[StoredRecord] = ()) -> asyncio.Future[None] | None:
        """See `Store`. Records of groups that are gone need not be kept, and are not."""
        for record in saves:
            self._save(record)
        for record in drops:
            self._drop(record)
        for name in self._unwritten:
            self._groups[name].counters = self._counters
        return asyncio.ensure_future(self._write_all(list(self._unwritten))) if self._unwritten else None

    def raise_epoch(self, above: int) -> asyncio.Future[None]:
        """See `Store`; the Lease keeps it."""
        return asyncio.ensure_future(self._raise_epoch(above))

    def check_room(self, event: AcquireRequested) -> None:
        """Raises QueueFull when the object of the request's group has no room for it."""
        request = RequestRecord(event.request_id, event.job_id, event.group_ids, 0, event.holder)
        home = self._home_of(request)
        if home is not None and not self._groups[home].records.has_room_for(request):
            size = self._groups[home].records.size
            message = f"group {home} has {size} bytes of records, and its object has room for {MAX_BYTES}"
            raise QueueFull(
                message, hint="ask again later, or ask by fewer processes", job_id=event.job_id, group_id=home
            )

    def groups_are(self, names: Iterable[GroupId]) -> None:
        """Takes which groups there are; new ones are written to when they get something to keep."""
        current = set(names)
        for name in [name for name in self._groups if name not in current]:
            self._forget(name)
        for name in sorted(current.difference(self._groups)):
            self._groups[name] = _Group(GroupObject(self._api, name))
            self._come_home(name)

    async def write_group(self, group_id: GroupId) -> None:
        """Writes what is to be shown of a group, along with all that it keeps. Raises StoreFailed."""
        if group_id in self._groups:
            await self._write_one(group_id)

    # What is kept where

    def _save(self, record: StoredRecord) -> None:
        if isinstance(record, NodeRecord):
            self._save_node(record)
        elif isinstance(record, CounterRecord):
            self._count(record)
        else:
            self._save_at_home(record)

    def _save_at_home(self, record: Record) -> None:
        key = row_key(record)
        home = self._homes.get(key) or self._home_of(record)
        if home is None:
            self._homeless[key] = record
            return
        self._homes[key] = home
        self._groups[home].records.save(record)
        self._unwritten[home] = None

    def _drop(self, record: StoredRecord) -> None:
        key = row_key(record)
        self._homeless.pop(key, None)
        home = self._homes.pop(key, None)
        if home is not None and not isinstance(record, NodeRecord):
            self._groups[home].records.drop(record)
            self._unwritten[home] = None

    def _save_node(self, node: NodeRecord) -> None:
        before = self._nodes.get(node.node)
        self._nodes[node.node] = node
        old, new = dict(before.groups) if before else {}, dict(node.groups)
        for name in (old | new).keys() & self._groups.keys():
            if self._groups[name].set_devices(node.node, new.get(name, ())):
                self._unwritten[name] = None

    def _count(self, record: CounterRecord) -> None:
        token, ticket = max(self._counters.token, record.token), max(self._counters.ticket, record.ticket)
        self._counters = CounterRecord(token, ticket)

    def _home_of(self, record: Record) -> GroupId | None:
        return next((name for name in groups_of(record) if name in self._groups), None)

    def _forget(self, name: GroupId) -> None:
        """A group is gone: what it kept of other groups moves there, to be written with their next write."""
        gone = self._groups.pop(name)
        self._unwritten.pop(name, None)
        for record in decoded(name, gone.records.document(0, CounterRecord())):
            if not isinstance(record, CounterRecord):
                del self._homes[row_key(record)]
                self._save_at_home(record)

    def _come_home(self, name: GroupId) -> None:
        for key in [key for key, record in self._homeless.items() if name in groups_of(record)]:
            self._save_at_home(self._homeless.pop(key))
        for node in self._nodes.values():
            if self._groups[name].set_devices(node.node, dict(node.groups).get(name, ())):
                self._unwritten[name] = None

    # The API server

    async def _write_all(self, names: Iterable[GroupId]) -> None:
        await _all(self._write_one(name) for name in names)

    async def _write_one(self, name: GroupId) -> None:
        group = self._groups.get(name)
        if group is None:
            return

        def wanted(_: Mapping[str, Any]) -> Mapping[str, Any]:
            self._unwritten.pop(name, None)
            group.shown = self.freshen(name) or group.shown
            return group.status(self.epoch)

        kept_before = name not in self._unwritten
        try:
            async with self._at_once:
                await self._ask(group.object, wanted)
        except GroupVanishedError:
            self._unwritten.pop(name, None)
            _log.info("group %s is gone, and its records with it", name, extra={"group_id": name})
        except StoreFailed:
            if not kept_before and name in self._groups:
                self._unwritten[name] = None
            raise

    async def _ask(self, object_: GroupObject, wanted: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> None:
        if self.deposed.done():
            raise _deposed(self.deposed.result())
        try:
            await object_.write(self.epoch, wanted)
        except DeposedError as error:
            if not self.deposed.done():
                self.deposed.set_result(str(error))
            raise _deposed(str(error)) from error

    async def _raise_epoch(self, above: int) -> None:
        try:
            await self._leadership.raise_epoch(above)
        except (ApiServerError, NotLeadingError) as error:
            raise StoreFailed(f"cannot raise the epoch above {above}: {error}") from error

    async def _take_over(self, found: Iterable[Object]) -> None:
        """First the epoch into every group, as it is; then its records are read, as nobody else changes them now."""
        for raw in found:
            self._groups[raw["metadata"]["name"]] = _Group(GroupObject(self._api, raw["metadata"]["name"], raw))
        await _all(self._shut_others_out(name) for name in list(self._groups))
        records: list[Record] = []
        for name, group in self._groups.items():
            status = group.object.seen or {}
            found_here = _readable(name, status.get("records") or {})
            group.counters = next((one for one in found_here if isinstance(one, CounterRecord)), group.counters)
            records += found_here
            for entry in status.get("devices") or []:
                group.devices[entry["node"]] = (*group.devices.get(entry["node"], ()), entry["device"])
        self._nodes = _nodes(self._groups)
        kept = reconciled(records)
        for record in kept:
            self._save(record)
        self.records = [*kept, *self._nodes.values()]
        self._unwritten = dict.fromkeys(name for name, group in self._groups.items() if not group.is_as_seen())
        await self._write_all(list(self._unwritten))

    async def _shut_others_out(self, name: GroupId) -> None:
        def stamped(seen: Mapping[str, Any]) -> dict[str, Any]:
            return {"records": {**(seen.get("records") or {}), "epoch": self.epoch}}

        try:
            async with self._at_once:
                await self._ask(self._groups[name].object, stamped)
        except GroupVanishedError:
            del self._groups[name]


def _deposed(reason: str) -> StoreFailed:
    return StoreFailed(f"this orchestrator leads no longer: {reason}", hint="ask again; its successor answers")


def _as_before(_: GroupId) -> Shown | None:
    return None


async def _all(writes: Iterable[Coroutine[Any, Any, None]]) -> None:
    """All of them side by side, each to its end; then the first failure."""
    outcomes = await asyncio.gather(*writes, return_exceptions=True)
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome


def _records(raw: Object) -> Mapping[str, Any]:
    return (raw.get("status") or {}).get("records") or {}


def _readable(name: GroupId, document: Mapping[str, Any]) -> list[Record]:
    try:
        return decoded(name, document)
    except ConfigError:
        raise
    except ValueError as error:
        found = json.dumps(document)[:_LOGGED]
        _log.error("group %s: its records make no sense (%r) and are not used: %s", name, error, found)
        return []


def _nodes(groups: Mapping[GroupId, _Group]) -> dict[NodeName, NodeRecord]:
    declared: dict[NodeName, dict[GroupId, tuple[str, ...]]] = {}
    for name, group in groups.items():
        for node, devices in group.devices.items():
            declared.setdefault(node, {})[name] = devices
    return {
        node: NodeRecord(
            node, tuple(dict.fromkeys(device for mine in by.values() for device in mine)), tuple(by.items())
        )
        for node, by in declared.items()
    }
