"""Keeps the set of groups up to date and tells the core of each change."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from timeslice_api.errors import ConfigError

from timeslice_orchestrator.core.events import GroupsChanged
from timeslice_orchestrator.core.model import GroupSpec, NodeName
from timeslice_orchestrator.discovery.groups_file import FileGroup, parsed
from timeslice_orchestrator.discovery.merge import NodeGroups, merged, shares
from timeslice_orchestrator.store import NodeRecord
from timeslice_orchestrator.strict_yaml import text_of

_log = logging.getLogger(__name__)


class Listener(Protocol):
    """Who is told first: the engine."""

    def post(self, event: GroupsChanged) -> None:
        """Takes the whole set of groups."""

    def save(self, node: NodeRecord) -> None:
        """Keeps a node's declaration for the next start."""


class NodesListener(Protocol):
    """Who is told then: the links to the nodes."""

    def tell_groups(self, by_node: Mapping[NodeName, NodeGroups]) -> None:
        """Takes the groups of every node."""


class Discovery:
    """The groups, as the file (or the cluster) and the nodes together make them.

    Args:
        listener: told of the whole set after each change.
        links: told of each node's share after each change of the file. What a node says changes its own share alone,
            which `groups_of` tells for its welcome and its answer.
        nodes: what was known of nodes at the last run.
    """

    def __init__(self, listener: Listener, links: NodesListener, nodes: Iterable[NodeRecord] = ()) -> None:
        self._listener = listener
        self._links = links
        self._nodes: dict[NodeName, NodeRecord] = {node.node: node for node in nodes}
        self._file: tuple[FileGroup, ...] = ()
        self._only_known = False
        self._told: tuple[GroupSpec, ...] | None = None
        self._warned: frozenset[str] = frozenset()
        self.file_error = ""

    def node_said(self, node: NodeRecord) -> None:
        """Takes what a node is and declares. Devices that another node had are this node's now."""
        if self._nodes.get(node.node) == node:
            return
        mine = set(node.devices)
        for other in list(self._nodes.values()):
            if other.node != node.node and mine.intersection(other.devices):
                self._keep(_without(other, mine))
        self._keep(node)
        self.tell()

    def file_said(self, path: Path) -> None:
        """Reads the groups file.

        Raises:
            ConfigError: nothing was changed; the message is kept as `file_error` until the file is good again.
        """
        try:
            self._file = parsed(text_of(path, "groups file"), str(path))
        except ConfigError as error:
            self.file_error = error.message
            raise
        self.file_error = ""
        self._tell_all()

    def groups_said(self, groups: tuple[FileGroup, ...]) -> None:
        """Takes the whole set of groups that there may be: nodes declare the devices in them, and no others count."""
        self._file, self._only_known = groups, True
        self._tell_all()

    def groups_of(self, node: NodeName) -> NodeGroups:
        """The groups of one node, with those of its devices that are in them."""
        return shares(self._told or (), {node: self._nodes[node]})[node] if node in self._nodes else {}

    def tell(self) -> None:
        """Tells the listener of the groups, if they are others than those told before."""
        result = merged(self._file, self._nodes, only_known=self._only_known)
        for warning in result.warnings:
            if warning not in self._warned:
                _log.warning("%s", warning)
        self._warned = frozenset(result.warnings)
        if result.groups != self._told:
            self._told = result.groups
            self._listener.post(GroupsChanged(result.groups))

    def _tell_all(self) -> None:
        self.tell()
        self._links.tell_groups(shares(self._told or (), self._nodes))

    def _keep(self, node: NodeRecord) -> None:
        self._nodes[node.node] = node
        self._listener.save(node)


def _without(node: NodeRecord, devices: set[str]) -> NodeRecord:
    left = tuple(device for device in node.devices if device not in devices)
    groups = ((group_id, tuple(device for device in mine if device not in devices)) for group_id, mine in node.groups)
    return NodeRecord(node.node, left, tuple((group_id, mine) for group_id, mine in groups if mine))
