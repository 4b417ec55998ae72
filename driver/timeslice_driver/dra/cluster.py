"""What the node follows in the cluster: the TimesliceGroups, and its own Node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from dra_kubeletplugin.apiserver import NODES, ApiServer, Object, Reflector, Resource
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import TimesliceGroup, bytes_of, decode_group
from timeslice_api.kinds import names as kinds

log = logging.getLogger(__name__)

GROUPS: Final = Resource(kinds.API_GROUP, kinds.VERSION, kinds.PLURAL_GROUP, namespaced=False)


class Cluster:
    """Groups by name, and the labels and the memory of the node.

    Args:
        api: the API server.
        node_name: of the node.
        changed: called when something of these became different; it must not block.
    """

    def __init__(self, api: ApiServer, node_name: str, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._node_name = node_name
        self._kept: dict[str, Object] = {}  # by UID: what counts of a group, to know an idle change from a real one
        self._groups: dict[str, TimesliceGroup] = {}
        self._group_objects = Reflector(api, GROUPS, keep=_of_group, on_change=lambda _: self._refresh())
        fields = f"metadata.name={node_name}"
        self._node = Reflector(api, NODES, fields=fields, keep=_of_node, on_change=lambda _: self._refresh_node())
        self._node_seen: Object | None = None

    @property
    def groups(self) -> Mapping[str, TimesliceGroup] | None:
        """None as long as nothing has been heard."""
        return self._groups if self._group_objects.synced.is_set() else None

    @property
    def known(self) -> bool:
        """Both have been heard."""
        return self._group_objects.synced.is_set() and self._node.synced.is_set()

    async def heard(self) -> None:
        """Returns when both have been heard."""
        await self._group_objects.synced.wait()
        await self._node.synced.wait()

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the node."""
        return self._node_object().get("metadata", {}).get("labels") or {}

    @property
    def allocatable_memory(self) -> int | None:
        """Bytes that pods may have on the node together; None when the Node does not say."""
        said = self._node_object().get("status", {}).get("memory")
        return None if said is None else bytes_of(said, "allocatable.memory")

    async def run(self) -> None:
        """Follows, until it is cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._group_objects.run())
            tasks.create_task(self._node.run())

    def _node_object(self) -> Object:
        return self._node.by_name(self._node_name) or {}

    def _refresh(self) -> None:
        """The orchestrator writes a group's status all the time; only what lanes are made of is news."""
        kept = {uid: _content(raw) for uid, raw in self._group_objects.objects.items()}
        if kept == self._kept:
            return
        self._kept = kept
        self._groups = {group.name: group for raw in kept.values() if (group := _decoded(raw))}
        self._changed()

    def _refresh_node(self) -> None:
        seen = _content(self._node_object())
        if seen != self._node_seen:
            self._node_seen = seen
            self._changed()


def _of_group(raw: Object) -> Object:
    kept = ("name", "uid", "resourceVersion", "deletionTimestamp")
    return {
        "metadata": {key: raw["metadata"][key] for key in kept if key in raw["metadata"]},
        "spec": raw.get("spec") or {},
        "status": {"jobs": (raw.get("status") or {}).get("jobs") or []},
    }


def _of_node(raw: Object) -> Object:
    kept = ("name", "uid", "resourceVersion", "labels")
    memory = ((raw.get("status") or {}).get("allocatable") or {}).get("memory")
    metadata = {key: raw["metadata"][key] for key in kept if key in raw["metadata"]}
    return {"metadata": metadata, "status": {} if memory is None else {"memory": memory}}


def _content(raw: Object) -> Object:
    metadata = {key: value for key, value in raw.get("metadata", {}).items() if key != "resourceVersion"}
    return {**raw, "metadata": metadata}


def _decoded(raw: Object) -> TimesliceGroup | None:
    try:
        return decode_group(raw)
    except ConfigError as error:
        log.error("not offered to claims: %s", error)
        return None
