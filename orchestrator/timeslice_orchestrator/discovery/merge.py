"""From the file and the nodes to the whole set of groups. What the file says wins over what nodes declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from timeslice_api.names import DEFAULT_GROUP

from timeslice_orchestrator.core.model import DeviceId, GroupId, GroupSpec, NodeName
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.store import NodeRecord

NodeGroups: TypeAlias = Mapping[GroupId, tuple[DeviceId, ...]]  # one node's devices by group


@dataclass(frozen=True)
class Merged:
    """All groups, sorted by id, and one sentence for each thing that does not fit together."""

    groups: tuple[GroupSpec, ...]
    warnings: tuple[str, ...]


def merged(file_groups: Iterable[FileGroup], nodes: Mapping[NodeName, NodeRecord]) -> Merged:
    """The groups of the file with the devices that the nodes have, and the groups that nodes declare beside them.

    A declaration is refused whole when the file has the group, or any of its devices; the node stays connected without
    it. Several nodes that declare one group share it.
    """
    merge = _Merge()
    for group in file_groups:
        merge.add_file_group(group, nodes)
    for group in file_groups:
        merge.add_rest(group, nodes)
    from_file = set(merge.devices)
    for node in sorted(nodes):
        for group_id, devices in nodes[node].groups:
            merge.add_declared(nodes[node], group_id, devices, from_file)
    return merge.result()


def shares(groups: Iterable[GroupSpec], nodes: Mapping[NodeName, NodeRecord]) -> dict[NodeName, NodeGroups]:
    """What each of the nodes has in the groups: only devices that it does have, whatever the file says."""
    found: dict[NodeName, dict[GroupId, tuple[DeviceId, ...]]] = {name: {} for name in nodes}
    for group in groups:
        for device, node in group.devices:
            if node in found and device in nodes[node].devices:
                found[node][group.group_id] = (*found[node].get(group.group_id, ()), device)
    return dict(found)


@dataclass
class _Merge:
    devices: dict[GroupId, list[tuple[DeviceId, NodeName]]] = field(default_factory=dict)
    jobs: dict[GroupId, frozenset[str] | None] = field(default_factory=dict)
    owner: dict[DeviceId, GroupId] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def add_file_group(self, group: FileGroup, nodes: Mapping[NodeName, NodeRecord]) -> None:
        self.devices[group.group_id] = []
        self.jobs[group.group_id] = group.jobs
        for node, devices in group.devices:
            self._add(group.group_id, node, devices or ())
            for device in devices or ():
                if node in nodes and device not in nodes[node].devices:
                    self.warnings.append(f"group {group.group_id} names {device}, which node {node} does not have")

    def add_rest(self, group: FileGroup, nodes: Mapping[NodeName, NodeRecord]) -> None:
        for node, devices in group.devices:
            if devices is None and node in nodes:
                self._add(group.group_id, node, [device for device in nodes[node].devices if device not in self.owner])

    def add_declared(
        self, node: NodeRecord, group_id: GroupId, devices: tuple[DeviceId, ...], from_file: set[GroupId]
    ) -> None:
        if group_id in from_file:
            if any(self.owner.get(device) != group_id for device in devices):
                self._refuse(node, group_id, "the groups file has that group, with other devices")
            return
        taken = [device for device in devices if device in self.owner]
        if taken and group_id == DEFAULT_GROUP:  # nobody asked for it
            return
        if taken:
            self._refuse(node, group_id, f"device {taken[0]} is in group {self.owner[taken[0]]}")
            return
        self.devices.setdefault(group_id, [])
        self._add(group_id, node.node, devices)

    def result(self) -> Merged:
        specs = (
            GroupSpec(group_id, tuple(self.devices[group_id]), self.jobs.get(group_id))
            for group_id in sorted(self.devices)
        )
        return Merged(tuple(specs), tuple(self.warnings))

    def _add(self, group_id: GroupId, node: NodeName, devices: Iterable[DeviceId]) -> None:
        for device in devices:
            self.devices[group_id].append((device, node))
            self.owner[device] = group_id

    def _refuse(self, node: NodeRecord, group_id: GroupId, reason: str) -> None:
        self.warnings.append(f"group {group_id} as declared by node {node.node} is not used: {reason}")
