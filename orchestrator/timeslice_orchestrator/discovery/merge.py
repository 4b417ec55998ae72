"""From the file and the nodes to the whole set of groups. What the file says wins over what nodes declare.

On Kubernetes the TimesliceGroups stand where the file does. They say which groups there are and who may join; the
devices in them are those that nodes declare, whose prepared claims are the truth about that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from timeslice_api.names import DEFAULT_GROUP

from timeslice_orchestrator.core.model import DeviceId, GroupId, GroupSpec, LeaseTimes, NodeName
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.store import NodeRecord

NodeGroups: TypeAlias = Mapping[GroupId, tuple[DeviceId, ...]]  # one node's devices by group


@dataclass(frozen=True)
class Merged:
    """All groups, sorted by id, and one sentence for each thing that does not fit together."""

    groups: tuple[GroupSpec, ...]
    warnings: tuple[str, ...]


def merged(
    file_groups: Iterable[FileGroup], nodes: Mapping[NodeName, NodeRecord], *, only_known: bool = False
) -> Merged:
    """The groups of the file with the devices that the nodes have, and the groups that nodes declare beside them.

    A declaration is refused whole when the file has the group with devices of its own, or any of its devices; the node
    stays connected without it. Several nodes that declare one group share it. `only_known` refuses declarations of
    groups that `file_groups` does not name.
    """
    merge = _Merge(only_known)
    for group in file_groups:
        merge.add_file_group(group, nodes)
    for group in file_groups:
        merge.add_rest(group, nodes)
    from_file = set(merge.devices) - merge.as_declared
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
    only_known: bool
    devices: dict[GroupId, list[tuple[DeviceId, NodeName]]] = field(default_factory=dict)
    jobs: dict[GroupId, frozenset[str] | None] = field(default_factory=dict)
    leases: dict[GroupId, LeaseTimes] = field(default_factory=dict)
    owner: dict[DeviceId, GroupId] = field(default_factory=dict)
    as_declared: set[GroupId] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    def add_file_group(self, group: FileGroup, nodes: Mapping[NodeName, NodeRecord]) -> None:
        self.devices[group.group_id] = []
        self.jobs[group.group_id] = group.jobs
        self.leases[group.group_id] = group.lease
        if group.devices is None:
            self.as_declared.add(group.group_id)
        for node, devices in group.devices or ():
            self._add(group.group_id, node, devices or ())
            for device in devices or ():
                if node in nodes and device not in nodes[node].devices:
                    self.warnings.append(f"group {group.group_id} names {device}, which node {node} does not have")

    def add_rest(self, group: FileGroup, nodes: Mapping[NodeName, NodeRecord]) -> None:
        for node, devices in group.devices or ():
            if devices is None and node in nodes:
                self._add(group.group_id, node, [device for device in nodes[node].devices if device not in self.owner])

    def add_declared(
        self, node: NodeRecord, group_id: GroupId, devices: tuple[DeviceId, ...], from_file: set[GroupId]
    ) -> None:
        if group_id in from_file:
            if any(self.owner.get(device) != group_id for device in devices):
                self._refuse(node, group_id, "the groups file has that group, with other devices")
            return
        if self.only_known and group_id not in self.as_declared:
            self._refuse(node, group_id, "there is no TimesliceGroup of that name; create it, or delete the claims")
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
            GroupSpec(
                group_id,
                tuple(self.devices[group_id]),
                self.jobs.get(group_id),
                self.leases.get(group_id, LeaseTimes()),
            )
            for group_id in sorted(self.devices)
        )
        return Merged(tuple(specs), tuple(self.warnings))

    def _add(self, group_id: GroupId, node: NodeName, devices: Iterable[DeviceId]) -> None:
        for device in devices:
            self.devices[group_id].append((device, node))
            self.owner[device] = group_id

    def _refuse(self, node: NodeRecord, group_id: GroupId, reason: str) -> None:
        self.warnings.append(f"group {group_id} as declared by node {node.node} is not used: {reason}")
