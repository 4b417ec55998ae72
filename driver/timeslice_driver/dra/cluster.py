"""What the node follows in the cluster: the TimesliceGroups, and its own Node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from dra_kubeletplugin.apiserver import NODES, ApiServer, Change, Object, Reflector, Resource
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
        self._groups: dict[str, TimesliceGroup] = {}
        self._group_objects = Reflector(api, GROUPS, keep=_of_group, on_change=self._take)
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

    def _take(self, change: Change) -> None:
        """The orchestrator writes a group's status all the time; only what lanes are made of is news.

        Each node hears of every group of the cluster, so only the one that changed is decoded.
        """
        old, new = (raw and _content(raw) for raw in (change.old, change.new))
        if old == new:
            return
        name = (old or new or {})["metadata"]["name"]
        others = {other: group for other, group in self._groups.items() if other != name}
        decoded = _decoded(new) if new else None
        self._groups = {**others, name: decoded} if decoded else others
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
