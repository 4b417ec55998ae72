"""The groups file:

groups:
  trainer-group:
    jobs: [job-a, job-b]        # optional: who may acquire; absent: everybody
    devices:
      node-1: [GPU-uuid-0, GPU-uuid-1]
      node-2: all               # every device of that node which is in no other group
"""

from __future__ import annotations

from dataclasses import dataclass, field

import yaml

from timeslice_orchestrator.core.model import DeviceId, GroupId, JobId, LeaseTimes, NodeName
from timeslice_orchestrator.strict_yaml import StrictYaml, line_of

ALL = "all"


@dataclass(frozen=True)
class FileGroup:
    """A group as the file, or the cluster, has it.

    Attributes:
        devices: by node; None for a node of which the group has all that is left. None instead of them all: those that
            nodes declare to be in it.
        lease: times of its leases.
    """

    group_id: GroupId
    devices: tuple[tuple[NodeName, tuple[DeviceId, ...] | None], ...] | None
    jobs: frozenset[JobId] | None = None
    lease: LeaseTimes = field(default_factory=LeaseTimes)


def parsed(text: str, name: str) -> tuple[FileGroup, ...]:
    """The groups of a file's text; `name` is the file's, for messages.

    Raises:
        ConfigError: with the line and the field that is wrong.
    """
    file = _File(name)
    return file.groups(file.root(text, "groups: {}"))


class _File(StrictYaml):
    """One reading of the file; remembers where each device was named first."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._seen: dict[tuple[NodeName, DeviceId], tuple[str, int]] = {}

    def groups(self, root: yaml.Node) -> tuple[FileGroup, ...]:
        top = dict(self.fields(root, "", ("groups",)))
        if "groups" not in top:
            raise self.error(root, "groups", "is missing")
        pairs = self.pairs(top["groups"], "groups")
        return tuple(self._group(self.name_of(key, "groups"), node, f"groups.{key.value}") for key, node in pairs)

    def _group(self, group_id: GroupId, node: yaml.Node, field: str) -> FileGroup:
        fields = dict(self.fields(node, field, ("jobs", "devices")))
        if "devices" not in fields:
            raise self.error(node, f"{field}.devices", "is missing")
        jobs = self.names(fields["jobs"], f"{field}.jobs") if "jobs" in fields else None
        field = f"{field}.devices"
        pairs = self.pairs(fields["devices"], field)
        named = [(self.name_of(key, field), value) for key, value in pairs]
        devices = tuple((name, self._devices(name, value, f"{field}.{name}")) for name, value in named)
        return FileGroup(group_id, devices, jobs)

    def _devices(self, name: NodeName, node: yaml.Node, field: str) -> tuple[DeviceId, ...] | None:
        if isinstance(node, yaml.ScalarNode):
            if node.value != ALL:
                raise self.error(node, field, f"is {node.value!r}; it must be a list of device ids, or {ALL!r}")
            self._claim(name, ALL, node, field)
            return None
        return tuple(self._claim(name, value, item, place) for value, item, place in self.strings(node, field))

    def _claim(self, name: NodeName, device: DeviceId, node: yaml.Node, field: str) -> DeviceId:
        # device ids are unique across nodes; "all" is one per node
        key = (name if device == ALL else "", device)
        if key in self._seen:
            place, line = self._seen[key]
            raise self.error(node, field, f"{device} is in {place} (line {line}) already; a device is in one group")
        self._seen[key] = (field, line_of(node))
        return device
