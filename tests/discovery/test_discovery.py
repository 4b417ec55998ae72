"""What the core is told of groups, and when."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from timeslice_api.errors import ConfigError
from timeslice_orchestrator.core.events import GroupsChanged
from timeslice_orchestrator.core.model import GroupSpec
from timeslice_orchestrator.discovery import Discovery
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.discovery.merge import NodeGroups
from timeslice_orchestrator.store import NodeRecord


class Ear:
    def __init__(self) -> None:
        self.told: list[tuple[GroupSpec, ...]] = []
        self.saved: list[NodeRecord] = []
        self.by_node: list[Mapping[str, NodeGroups]] = []

    def post(self, event: GroupsChanged) -> None:
        self.told.append(event.groups)

    def tell_groups(self, by_node: Mapping[str, NodeGroups]) -> None:
        self.by_node.append(by_node)

    def save(self, node: NodeRecord) -> None:
        self.saved.append(node)


def written(folder: Path, text: str) -> Path:
    path = folder / "groups.yaml"
    path.write_text(text)
    return path


GOOD = "groups: {a: {devices: {n1: [d1]}}}"
NODE = NodeRecord("n1", ("d1",), (("default", ("d1",)),))


def test_a_hello_that_says_nothing_new_tells_and_saves_nothing() -> None:
    ear = Ear()
    discovery = Discovery(ear, ear)
    discovery.node_said(NODE)
    discovery.node_said(NODE)
    assert ear.told == [(GroupSpec("default", (("d1", "n1"),)),)]
    assert ear.saved == [NODE]


def test_what_nodes_declared_before_a_restart_is_known_before_they_dial_in() -> None:
    ear = Ear()
    Discovery(ear, ear, [NODE]).tell()
    assert ear.told == [(GroupSpec("default", (("d1", "n1"),)),)]


def test_a_bad_file_leaves_the_last_good_one_in_force_and_keeps_its_error_until_a_good_one_comes(
    tmp_path: Path,
) -> None:
    ear = Ear()
    discovery = Discovery(ear, ear)
    discovery.file_said(written(tmp_path, GOOD))
    with pytest.raises(ConfigError):
        discovery.file_said(written(tmp_path, "groups: ["))
    assert "line 1" in discovery.file_error
    assert ear.told == [(GroupSpec("a", (("d1", "n1"),)),)]
    discovery.file_said(written(tmp_path, GOOD))
    assert discovery.file_error == ""


def test_devices_that_a_node_brings_are_no_longer_those_of_the_node_that_had_them() -> None:
    ear = Ear()
    discovery = Discovery(ear, ear, [NODE])
    discovery.node_said(NodeRecord("renamed", ("d1",), (("default", ("d1",)),)))
    assert ear.told[-1] == (GroupSpec("default", (("d1", "renamed"),)),)
    assert ear.saved == [NodeRecord("n1", ()), NodeRecord("renamed", ("d1",), (("default", ("d1",)),))]


def test_a_conflict_is_logged_once_and_not_at_every_hello(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ear = Ear()
    discovery = Discovery(ear, ear)
    discovery.file_said(written(tmp_path, GOOD))
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            discovery.node_said(NodeRecord("n1", ("d1",), (("own", ("d1",)),)))
    assert caplog.messages == ["group own as declared by node n1 is not used: device d1 is in group a"]


def test_a_nodes_groups_are_known_for_its_welcome_and_told_when_the_file_changes(tmp_path: Path) -> None:
    ear = Ear()
    discovery = Discovery(ear, ear)
    assert discovery.groups_of("n1") == {}
    discovery.node_said(NODE)
    assert discovery.groups_of("n1") == {"default": ("d1",)}
    discovery.file_said(written(tmp_path, "groups: {a: {devices: {n1: [d1, d2]}}}"))
    assert ear.by_node == [{"n1": {"a": ("d1",)}}]  # d2 is no device of the node yet
    discovery.node_said(NodeRecord("n1", ("d1", "d2"), NODE.groups))
    assert discovery.groups_of("n1") == {"a": ("d1", "d2")}
    discovery.file_said(written(tmp_path, "groups: {}"))
    assert ear.by_node[1:] == [{"n1": {"default": ("d1",)}}]


def test_on_kubernetes_only_the_groups_of_the_cluster_are_in_force_with_the_devices_that_nodes_declare() -> None:
    ear = Ear()
    discovery = Discovery(ear, ear)
    discovery.node_said(NodeRecord("n1", ("d1", "d2"), (("a", ("d1",)), ("b", ("d2",)))))
    discovery.groups_said((FileGroup("a", None),))
    assert ear.told[-1] == (GroupSpec("a", (("d1", "n1"),)),)
    assert ear.by_node[-1] == {"n1": {"a": ("d1",)}}
    discovery.node_said(NodeRecord("n1", ("d1", "d2"), (("a", ("d1", "d2")),)))
    assert ear.told[-1] == (GroupSpec("a", (("d1", "n1"), ("d2", "n1"))),)
    discovery.groups_said(())
    assert not ear.told[-1]
    assert ear.by_node[-1] == {"n1": {}}
