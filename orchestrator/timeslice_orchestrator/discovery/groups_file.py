"""The groups file:

groups:
  trainer-group:
    jobs: [job-a, job-b]        # optional: who may acquire; absent: everybody
    devices:
      node-1: [GPU-uuid-0, GPU-uuid-1]
      node-2: all               # every device of that node which is in no other group
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml
from timeslice_api.errors import ConfigError, InvalidRequest
from timeslice_api.names import checked_name

from timeslice_orchestrator.core.model import DeviceId, GroupId, JobId, LeaseTimes, NodeName

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
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise ConfigError(f"{name} line {line}: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{name}: {error}") from error
    if root is None:
        raise ConfigError(f"{name} is empty", hint="it needs at least `groups: {}`")
    return _File(name).groups(root)


class _File:
    """One reading of the file; remembers where each device was named first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._seen: dict[tuple[NodeName, DeviceId], tuple[str, int]] = {}

    def groups(self, root: yaml.Node) -> tuple[FileGroup, ...]:
        top = dict(self._fields(root, "", ("groups",)))
        if "groups" not in top:
            raise self._error(root, "groups", "is missing")
        pairs = self._pairs(top["groups"], "groups")
        return tuple(self._group(self._name_of(key, "groups"), node, f"groups.{key.value}") for key, node in pairs)

    def _group(self, group_id: GroupId, node: yaml.Node, field: str) -> FileGroup:
        fields = dict(self._fields(node, field, ("jobs", "devices")))
        if "devices" not in fields:
            raise self._error(node, f"{field}.devices", "is missing")
        jobs = self._jobs(fields["jobs"], f"{field}.jobs") if "jobs" in fields else None
        field = f"{field}.devices"
        pairs = self._pairs(fields["devices"], field)
        named = [(self._name_of(key, field), value) for key, value in pairs]
        devices = tuple((name, self._devices(name, value, f"{field}.{name}")) for name, value in named)
        return FileGroup(group_id, devices, jobs)

    def _jobs(self, node: yaml.Node, field: str) -> frozenset[JobId]:
        return frozenset(self._checked(value, item, place) for value, item, place in self._strings(node, field))

    def _devices(self, name: NodeName, node: yaml.Node, field: str) -> tuple[DeviceId, ...] | None:
        if isinstance(node, yaml.ScalarNode):
            if node.value != ALL:
                raise self._error(node, field, f"is {node.value!r}; it must be a list of device ids, or {ALL!r}")
            self._claim(name, ALL, node, field)
            return None
        return tuple(self._claim(name, value, item, place) for value, item, place in self._strings(node, field))

    def _claim(self, name: NodeName, device: DeviceId, node: yaml.Node, field: str) -> DeviceId:
        # device ids are unique across nodes; "all" is one per node
        key = (name if device == ALL else "", device)
        if key in self._seen:
            place, line = self._seen[key]
            raise self._error(node, field, f"{device} is in {place} (line {line}) already; a device is in one group")
        self._seen[key] = (field, node.start_mark.line + 1)
        return device

    def _fields(self, node: yaml.Node, field: str, known: tuple[str, ...]) -> Iterator[tuple[str, yaml.Node]]:
        for key, value in self._pairs(node, field):
            if key.value not in known:
                raise self._error(key, _under(field, key), f"is not known here; known: {', '.join(known)}")
            yield key.value, value

    def _pairs(self, node: yaml.Node, field: str) -> list[tuple[yaml.ScalarNode, yaml.Node]]:
        if not isinstance(node, yaml.MappingNode):
            raise self._error(node, field or "the file", "must be a mapping")
        lines: dict[str, int] = {}
        for key, _ in node.value:
            name = self._string(key, f"{field}: a key" if field else "a key")
            if name in lines:
                raise self._error(key, _under(field, key), f"is there twice; first in line {lines[name]}")
            lines[name] = key.start_mark.line + 1
        return list(node.value)

    def _strings(self, node: yaml.Node, field: str) -> Iterator[tuple[str, yaml.Node, str]]:
        if not isinstance(node, yaml.SequenceNode):
            raise self._error(node, field, "must be a list")
        for index, item in enumerate(node.value):
            place = f"{field}[{index}]"
            yield self._string(item, place), item, place

    def _string(self, node: yaml.Node, field: str) -> str:
        if not isinstance(node, yaml.ScalarNode):
            raise self._error(node, field, "must be a string")
        if node.tag != "tag:yaml.org,2002:str":
            raise self._error(node, field, f"{node.value!r} must be a string: put it in quotes")
        if not node.value:
            raise self._error(node, field, "is empty")
        return str(node.value)

    def _checked(self, value: str, node: yaml.Node, field: str) -> str:
        try:
            return checked_name(value, field)
        except InvalidRequest as error:
            raise ConfigError(f"{self._name} line {node.start_mark.line + 1}: {error.message}") from error

    def _name_of(self, key: yaml.ScalarNode, field: str) -> str:
        return self._checked(key.value, key, _under(field, key))

    def _error(self, node: yaml.Node, field: str, problem: str) -> ConfigError:
        return ConfigError(f"{self._name} line {node.start_mark.line + 1}: {field} {problem}")


def _under(field: str, key: yaml.ScalarNode) -> str:
    return f"{field}.{key.value}" if field else str(key.value)
