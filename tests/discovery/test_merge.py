"""How the file and what nodes declare become one set of groups."""

from __future__ import annotations

from timeslice_orchestrator.core.model import GroupSpec, LeaseTimes
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.discovery.merge import Merged, merged, shares
from timeslice_orchestrator.store import NodeRecord


def node(name: str, *devices: str, **groups: tuple[str, ...]) -> NodeRecord:
    return NodeRecord(name, devices, tuple(groups.items()))


def merge(*nodes: NodeRecord, file: tuple[FileGroup, ...] = ()) -> Merged:
    return merged(file, {record.node: record for record in nodes})


def test_without_a_file_the_nodes_declarations_are_the_groups() -> None:
    result = merge(node("n1", "d1", "d2", a=("d1",), b=("d2",)))
    assert result == Merged((GroupSpec("a", (("d1", "n1"),)), GroupSpec("b", (("d2", "n1"),))), ())


def test_nodes_that_declare_the_same_group_share_it() -> None:
    result = merge(node("n2", "d2", a=("d2",)), node("n1", "d1", a=("d1",)))
    assert result.groups == (GroupSpec("a", (("d1", "n1"), ("d2", "n2"))),)


def test_all_means_the_devices_of_the_node_that_no_group_names() -> None:
    file = (FileGroup("rest", (("n1", None),)), FileGroup("a", (("n1", ("d2",)),), frozenset({"job-a"})))
    result = merge(node("n1", "d1", "d2", "d3"), file=file)
    assert result.groups == (
        GroupSpec("a", (("d2", "n1"),), frozenset({"job-a"})),
        GroupSpec("rest", (("d1", "n1"), ("d3", "n1"))),
    )


def test_all_of_a_node_that_was_never_heard_is_nothing_yet() -> None:
    assert merge(file=(FileGroup("rest", (("n1", None),)),)).groups == (GroupSpec("rest", ()),)


def test_a_device_that_the_file_gives_to_a_group_is_not_given_to_a_declared_one() -> None:
    result = merge(node("n1", "d1", "d2", own=("d1", "d2")), file=(FileGroup("a", (("n1", ("d1",)),)),))
    assert result.groups == (GroupSpec("a", (("d1", "n1"),)),)
    assert result.warnings == ("group own as declared by node n1 is not used: device d1 is in group a",)


def test_the_default_group_gives_way_to_the_file_without_a_warning_since_nobody_asked_for_it() -> None:
    result = merge(node("n1", "d1", "d2", default=("d1", "d2")), file=(FileGroup("a", (("n1", ("d1",)),)),))
    assert result == Merged((GroupSpec("a", (("d1", "n1"),)),), ())


def test_the_file_has_the_last_word_on_a_group_that_a_node_declares_too() -> None:
    result = merge(node("n1", "d1", "d2", a=("d1", "d2")), file=(FileGroup("a", (("n1", ("d1",)),)),))
    assert result.groups == (GroupSpec("a", (("d1", "n1"),)),)
    assert result.warnings == (
        "group a as declared by node n1 is not used: the groups file has that group, with other devices",
    )


def test_a_declaration_that_says_what_the_file_says_is_no_conflict() -> None:
    result = merge(node("n1", "d1", a=("d1",)), file=(FileGroup("a", (("n1", None),)),))
    assert result == Merged((GroupSpec("a", (("d1", "n1"),)),), ())


def test_a_device_that_the_file_names_and_its_node_does_not_have_is_told() -> None:
    result = merge(node("n1", "d1"), file=(FileGroup("a", (("n1", ("d1", "typo")),)),))
    assert result.warnings == ("group a names typo, which node n1 does not have",)


def test_a_node_has_a_share_of_the_groups_that_have_devices_on_it() -> None:
    nodes = {name: node(name, f"{name}-d1", f"{name}-d2") for name in ("n1", "n2")}
    file = (
        FileGroup("a", (("n1", ("n1-d1", "typo")), ("n2", ("n2-d1",)), ("n3", ("n3-d1",)))),
        FileGroup("rest", (("n1", None),)),
        FileGroup("empty", ()),
    )
    assert shares(merged(file, nodes).groups, nodes) == {
        "n1": {"a": ("n1-d1",), "rest": ("n1-d2",)},
        "n2": {"a": ("n2-d1",)},
    }


class TestGroupsWhoseDevicesNodesDeclare:
    """As on Kubernetes: TimesliceGroups say which groups there are, prepared claims what is in them."""

    def test_each_has_what_the_nodes_say(self) -> None:
        file = (FileGroup("a", None, frozenset({"job-a"})), FileGroup("b", None))
        nodes = {"n1": node("n1", "d1", "d2", a=("d1",)), "n2": node("n2", "d3", a=("d3",))}
        result = merged(file, nodes, only_known=True)
        groups = (GroupSpec("a", (("d1", "n1"), ("d3", "n2")), frozenset({"job-a"})), GroupSpec("b", ()))
        assert result == Merged(groups, ())

    def test_a_declared_group_that_nobody_made_is_refused_with_the_mend(self) -> None:
        result = merged((FileGroup("a", None),), {"n1": node("n1", "d1", b=("d1",))}, only_known=True)
        assert result.groups == (GroupSpec("a", ()),)
        assert result.warnings == (
            "group b as declared by node n1 is not used: there is no TimesliceGroup of that name; create it, or delete "
            "the claims",
        )

    def test_devices_that_another_group_names_are_not_taken_from_it(self) -> None:
        file = (FileGroup("fixed", (("n1", ("d1",)),)), FileGroup("a", None))
        result = merge(node("n1", "d1", "d2", a=("d1", "d2")), file=file)
        assert result.groups == (GroupSpec("a", ()), GroupSpec("fixed", (("d1", "n1"),)))
        assert result.warnings == ("group a as declared by node n1 is not used: device d1 is in group fixed",)


def test_lease_times_of_a_group_come_with_it() -> None:
    times = LeaseTimes(ttl_s=10)
    result = merged((FileGroup("a", None, lease=times),), {"n1": node("n1", "d1", a=("d1",))}, only_known=True)
    assert result.groups == (GroupSpec("a", (("d1", "n1"),), lease=times),)
