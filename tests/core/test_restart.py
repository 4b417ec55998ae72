from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import FAILED, ONE, PARKED, RUNNING, SETTINGS, World
from timeslice_api.errors import JobQuarantined
from timeslice_orchestrator.core.events import Drained, GroupsChanged, PartsReported, Resumed
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.core.model import MemberKey, PartReport, RequestRecord

GRACED = replace(SETTINGS, restart_grace_s=15.0)


def test_holder_and_queue_are_the_same_after_a_restart() -> None:
    world = World(ONE, GRACED)
    held, second, third = (world.acquire(job, "g") for job in "abc")
    world.restart()
    assert world.waits(second).position == 1
    for job, request in zip("abc", (held, second, third), strict=True):
        world.acquire(job, "g", request=request)
    assert world.holds(held)
    world.yield_(held)
    assert world.holds(second)
    assert not world.holds(third)


def test_a_restored_waiter_that_nobody_asks_for_leaves_after_the_restart_grace() -> None:
    world = World(ONE, GRACED)
    held, ghost, other = (world.acquire(job, "g") for job in "abc")
    world.restart()
    world.acquire("c", "g", request=other)
    world.yield_(held)
    assert not world.holds(other)
    world.until(15.0)
    assert world.holds(other)
    assert ghost not in world.leases


def test_a_restored_lease_has_a_whole_time_to_live() -> None:
    world = World(ONE, GRACED)
    held = world.acquire("a", "g")
    world.until(25.0)
    world.restart()
    world.until(50.0)
    assert not world.renew(held).lost
    world.restart()
    world.until(80.0)
    assert world.lost[held] == "expired"


def test_tokens_and_tickets_go_on_rising_after_a_restart() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    waiting = world.acquire("b", "g")
    token = world.leases[held].token
    world.restart()
    world.acquire("b", "g", request=waiting)
    late = world.acquire("c", "g")
    assert world.waits(late).position == 2
    world.yield_(held)
    assert world.leases[waiting].token > token


def test_a_hand_off_that_a_restart_cut_in_half_is_continued() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in "ab":
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.nodes["n1"].execute()
    world.restart()
    world.acquire("b", "g", request=request)
    world.run()
    assert world.holds(request)
    assert [world.state(job, "g", node) for job in "ab" for node in ("n1", "n2")] == [PARKED, PARKED, RUNNING, RUNNING]


def test_what_a_restart_left_locked_is_unlocked_when_its_job_comes_back() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in "ab":
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("a", "g"))
    ghost = world.acquire("b", "g")
    world.nodes["n1"].execute()
    world.restart()
    world.withdraw(ghost, "b")
    request = world.acquire("a", "g")
    world.run()
    assert world.holds(request)
    assert world.state("a", "g", "n1") is RUNNING


def test_after_a_restart_nobody_is_served_before_all_nodes_of_the_group_were_heard() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}}, GRACED)
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("a", "g"))
    world.restart(connect=False)
    world.connect("n1")
    request = world.acquire("a", "g")
    assert world.waits(request).reason == "n2 was not heard yet"
    world.connect("n2")
    assert world.leases[request].devices == {"d1", "d2"}


def test_a_node_that_is_never_heard_is_not_awaited_longer_than_the_restart_grace() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}, "unused": {"n1": ["d3"]}}, GRACED)
    world.restart(connect=False)
    world.join("a", "g", n1=["d1"])
    world.connect("n1")
    request = world.acquire("a", "g")
    assert not world.holds(request)
    world.until(15.0)
    assert world.holds(request)


def test_a_request_for_a_group_that_is_not_known_yet_waits_for_it() -> None:
    world = World(ONE, GRACED)
    request = world.acquire("a", "g")
    waiting = world.acquire("b", "g")
    world.core = Core(GRACED, list(world.store.values()), world.now)
    world.acquire("b", "g", request=waiting)
    assert world.waits(waiting).reason == "group g is not known"
    world.do(GroupsChanged(tuple(world.specs.values())))
    world.connect("n1")
    world.yield_(request)
    assert world.holds(waiting)


def test_a_drain_outlives_a_restart() -> None:
    world = World(ONE)
    world.do(Drained("g"))
    world.restart()
    request = world.acquire("a", "g")
    assert not world.holds(request)
    world.do(Resumed("g"))
    assert world.holds(request)
    assert not [key for key in world.store if isinstance(key, tuple) and key[0] == "drain"]


def test_a_quarantine_outlives_a_restart_as_long_as_its_member_does() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    key = MemberKey("a", "g")
    world.join("a", "g", n1=["d1"])
    world.nodes["n1"].parts[key].state = FAILED
    world.do(PartsReported("n1", (world.nodes["n1"].report(key),)))
    world.restart()
    with pytest.raises(JobQuarantined):
        world.acquire("a", "g")
    world.restart(connect=False)
    del world.nodes["n1"].parts[key]
    world.connect("n1")
    with pytest.raises(JobQuarantined):
        world.acquire("a", "g")
    world.connect("n2")
    assert world.holds(world.acquire("a", "g"))


def test_a_quarantine_ends_when_after_a_restart_no_node_tells_of_anything_that_failed() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    key = MemberKey("a", "g")
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.nodes["n1"].parts[key].state = FAILED
    world.do(PartsReported("n1", (world.nodes["n1"].report(key),)))
    world.restart(connect=False)
    del world.nodes["n1"].parts[key]
    world.connect("n2")
    with pytest.raises(JobQuarantined):
        world.acquire("a", "g")
    world.connect("n1")
    request = world.acquire("a", "g")
    world.run()
    assert world.holds(request)


def test_a_restored_lease_covers_processes_that_are_heard_of_later() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    held = world.acquire("a", "g")
    world.restart()
    world.join("b", "g", n1=["d1"])
    world.use(held)
    world.yield_(held)
    request = world.acquire("b", "g")
    assert not world.holds(request)
    world.run()
    assert world.holds(request)


def test_records_in_any_order_restore_the_queue_in_the_order_of_tickets() -> None:
    records = [RequestRecord(f"r{ticket}", f"job-{ticket}", ("g",), ticket) for ticket in (3, 1, 2)]
    core = Core(SETTINGS, records)
    world = World(ONE)
    core.step(GroupsChanged(tuple(world.specs.values())), 0.0)
    assert [core.waiting(f"r{ticket}", 0.0).position for ticket in (1, 2, 3)] == [1, 2, 3]
    assert [waiter.request_id for waiter in core.view("g", 0.0).waiters] == ["r1", "r2", "r3"]


def test_a_resident_part_of_nobody_is_parked_before_the_first_grant_after_a_restart() -> None:
    world = World(ONE)
    world.join("old", "g", n1=["d1"])
    world.yield_(world.hold("old", "g"))
    world.restart()
    request = world.acquire("new", "g")
    assert not world.holds(request)
    world.run()
    assert world.state("old", "g", "n1") is PARKED
    assert world.holds(request)


def test_a_failed_part_reported_without_state_on_the_devices_is_no_obstacle() -> None:
    world = World(ONE)
    world.do(PartsReported("n1", (PartReport(MemberKey("x", "g"), frozenset({"d1"}), FAILED, resident=False),)))
    assert world.holds(world.acquire("a", "g"))
