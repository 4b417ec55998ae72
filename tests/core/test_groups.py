from __future__ import annotations

import pytest
from core_world import RUNNING, TWO, World
from timeslice_api.errors import GroupNotFound, JobNotAdmitted
from timeslice_orchestrator.core.effects import GroupChanged
from timeslice_orchestrator.core.events import Drained, GroupsChanged
from timeslice_orchestrator.core.model import GroupSpec


def test_waiters_of_a_group_that_is_gone_are_refused() -> None:
    world = World(TWO)
    world.acquire("a", "g")
    request = world.acquire("b", "g")
    elsewhere = world.acquire("b", "h")
    world.change_groups(world.specs["h"])
    assert isinstance(world.refused[request], GroupNotFound)
    assert world.holds(elsewhere)
    assert world.core.groups() == ["h"]


def test_a_lease_outlives_its_group_until_it_is_yielded() -> None:
    world = World(TWO)
    request = world.acquire("a", "g")
    spec = world.specs["g"]
    world.change_groups(world.specs["h"])
    assert world.holds(request)
    world.change_groups(*world.specs.values(), spec)
    waiting = world.acquire("b", "g")
    assert world.waits(waiting).holder_job_id == "a"
    world.yield_(request)
    assert world.holds(waiting)


def test_a_new_device_is_waited_for_by_those_that_want_the_whole_group() -> None:
    world = World(TWO)
    held = world.acquire("a", "g")
    request = world.acquire("b", "g")
    world.change_groups(GroupSpec("g", (("d1", "n1"), ("d9", "n1"))))
    world.yield_(held)
    assert world.leases[request].devices == {"d1", "d9"}


def test_a_device_may_move_to_another_group_and_node() -> None:
    world = World(TWO)
    world.change_groups(GroupSpec("g", (("d1", "n1"), ("d2", "n1"))))
    assert world.leases[world.acquire("a", "g")].devices == {"d1", "d2"}


def test_a_waiter_that_is_no_longer_admitted_is_refused() -> None:
    world = World(TWO)
    world.acquire("a", "g")
    request, other = world.acquire("b", "g"), world.acquire("c", "g")
    world.limit("g", "a", "c")
    assert isinstance(world.refused[request], JobNotAdmitted)
    assert world.waits(other).position == 1


def test_the_same_groups_again_change_nothing() -> None:
    world = World(TWO)
    assert world.do(GroupsChanged(tuple(world.specs.values()))) == []


def test_only_groups_that_changed_are_told() -> None:
    world = World(TWO)
    assert GroupChanged("h") not in world.do(Drained("g"))


def test_a_dead_node_that_left_all_groups_is_not_awaited_any_more() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    held = world.hold("a", "g")
    world.lose("n2")
    world.yield_(held)
    request = world.acquire("a", "g")
    assert not world.holds(request)
    world.change_groups(GroupSpec("g", (("d1", "n1"),)))
    assert world.leases[request].devices == {"d1"}
    assert world.state("a", "g", "n2") is RUNNING


def test_a_lease_does_not_end_because_a_dead_node_left_its_group() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.lose("n1")
    world.change_groups(GroupSpec("g", ()))
    assert world.holds(held)


def test_draining_an_unknown_group_is_refused() -> None:
    with pytest.raises(GroupNotFound):
        World(TWO).do(Drained("x"))


def test_a_device_that_is_named_twice_breaks_nothing() -> None:
    world = World(TWO)
    world.change_groups(GroupSpec("g", (("d1", "n1"),)), GroupSpec("h", (("d1", "n1"),)))
    world.change_groups(GroupSpec("h", (("d1", "n1"), ("d2", "n1"))))
    assert world.leases[world.acquire("a", "h")].devices == {"d1", "d2"}


class TestADeviceThatMovesBetweenGroups:
    """As on Kubernetes: the last claim of one group is unprepared, and then one of another group prepared there."""

    GONE = GroupSpec("g", ()), GroupSpec("h", ())
    BEFORE = GroupSpec("g", (("d1", "n1"),)), GroupSpec("h", ())
    AFTER = GroupSpec("g", ()), GroupSpec("h", (("d1", "n1"),))

    def world(self) -> World:
        """Job a is resident in group g, whose only device is going to move."""
        world = World({"g": {"n1": ["d1"]}, "h": {"n1": []}})
        world.join("a", "g", n1=["d1"])
        world.yield_(world.hold("a", "g"))
        return world

    def test_the_next_groups_jobs_take_turns_on_it(self) -> None:
        world = self.world()
        waiting = world.acquire("b", "h")
        assert world.waits(waiting).reason == "group h has no devices"
        world.kill("a", "g", "n1")
        world.change_groups(*self.GONE)
        world.change_groups(*self.AFTER)
        assert world.leases[waiting].devices == {"d1"}
        world.join("b", "h", n1=["d1"])
        world.use(waiting)
        world.join("c", "h", n1=["d1"])
        other = world.acquire("c", "h")
        assert world.waits(other).holder_job_id == "b"
        world.yield_(waiting)
        world.run()
        assert world.holds(other)
        assert ("b", "parked") in world.nodes["n1"].log

    def test_the_next_groups_duty_is_not_that_of_the_one_before(self) -> None:
        world = World({"g": {"n1": ["d1"]}, "h": {"n1": []}})
        world.join("a", "g", n1=["d1"])
        held = world.hold("a", "g")
        world.until(8.0)
        world.yield_(held)
        world.kill("a", "g", "n1")
        world.change_groups(*self.GONE)
        world.change_groups(*self.AFTER)
        world.join("b", "h", n1=["d1"])
        held = world.hold("b", "h")
        world.until(9.0)
        world.yield_(held)
        assert world.core.view("h", 12.0).duty_cycle == pytest.approx(0.25)

    def test_a_part_may_be_heard_before_its_device_is_in_its_group(self) -> None:
        world = self.world()
        world.kill("a", "g", "n1")
        world.change_groups(*self.GONE)
        world.join("b", "h", n1=["d1"])
        waiting = world.acquire("b", "h")
        assert world.waits(waiting).reason == "device d1 is in no group"
        world.change_groups(*self.AFTER)
        assert world.leases[waiting].devices == {"d1"}

    def test_what_is_left_of_the_old_groups_job_is_parked_before_the_device_is_granted(self) -> None:
        world = self.world()  # its processes outlive its claim
        world.change_groups(*self.AFTER)
        world.join("b", "h", n1=["d1"])
        request = world.acquire("b", "h")
        world.run()
        assert world.holds(request)
        assert world.nodes["n1"].log == [("a", "locked"), ("a", "parked")]
        world.kill("a", "g", "n1")
        assert world.core.view("g", world.now).members == ()

    def test_a_holder_in_the_old_group_keeps_it_until_its_processes_end(self) -> None:
        world = self.world()
        held = world.hold("a", "g")
        world.change_groups(*self.AFTER)
        waiting = world.acquire("b", "h")
        assert world.waits(waiting).reason == "held by a"
        world.kill("a", "g", "n1")
        assert held in world.lost
        assert world.holds(waiting)

    def test_a_waiter_of_the_old_group_waits_for_its_next_device(self) -> None:
        world = self.world()
        held = world.hold("a", "g")
        waiting = world.acquire("c", "g")
        world.yield_(held)  # the hand-off begins
        world.kill("a", "g", "n1")
        world.run()
        assert world.holds(waiting)
        late = world.acquire("e", "g")
        world.change_groups(*self.AFTER)
        assert world.waits(late).reason == "group g has no devices"
        world.yield_(waiting)
        world.change_groups(*self.BEFORE)
        assert world.leases[late].devices == {"d1"}
