"""Who is served when: the order of requests, and what keeps them waiting."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import ONE, RUNNING, SETTINGS, TWO, World
from timeslice_api.errors import GroupNotFound, JobNotAdmitted, QueueFull, Unavailable
from timeslice_orchestrator.core.events import Drained, Resumed


def test_requests_are_served_in_the_order_of_their_arrival() -> None:
    world = World(ONE)
    first = world.acquire("a", "g")
    others = [world.acquire(job, "g") for job in "bcd"]
    assert [world.waits(request).position for request in others] == [1, 2, 3]
    assert world.waits(others[0]).reason == "held by a"
    assert world.waits(others[0]).holder_job_id == "a"
    for request in others:
        world.yield_(first)
        world.run()
        assert world.holds(request)
        first = request


def test_several_groups_are_granted_together_or_not_at_all() -> None:
    world = World(TWO)
    held = world.acquire("a", "h")
    both = world.acquire("b", "g", "h")
    assert not world.holds(both)
    assert world.yield_(held).waiting == 1
    world.run()
    assert world.leases[both].devices == {"d1", "d2"}


def test_an_earlier_request_for_several_groups_is_not_overtaken() -> None:
    world = World(TWO)
    world.acquire("a", "h")
    world.acquire("b", "g", "h")
    late = world.acquire("c", "g")
    assert world.waits(late).reason == "behind b"


def test_jobs_on_disjoint_devices_of_a_group_run_at_the_same_time() -> None:
    world = World({"g": {"n1": ["d1", "d2"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d2"])
    assert world.holds(world.acquire("a", "g"))
    assert world.holds(world.acquire("b", "g"))


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(GroupNotFound, match="'nowhere'"):
        World(ONE).acquire("a", "nowhere")


def test_a_group_that_nodes_may_be_about_to_tell_of_is_unknown_only_after_the_restart_grace() -> None:
    world = World(ONE, replace(SETTINGS, restart_grace_s=15.0))
    world.until(14.9)
    with pytest.raises(Unavailable, match="'nowhere' is not known yet"):
        world.acquire("a", "nowhere")
    world.until(15.0)
    with pytest.raises(GroupNotFound, match="'nowhere'"):
        world.acquire("a", "nowhere")


def test_a_job_that_is_not_on_the_list_is_not_admitted() -> None:
    world = World(ONE, jobs={"g": frozenset({"a"})})
    with pytest.raises(JobNotAdmitted):
        world.acquire("b", "g")
    assert world.holds(world.acquire("a", "g"))


def test_too_many_waiters_are_told_to_come_later_while_free_devices_are_still_granted() -> None:
    world = World(TWO, replace(SETTINGS, max_waiting=1))
    world.acquire("a", "g")
    world.acquire("b", "g")
    with pytest.raises(QueueFull):
        world.acquire("c", "g")
    assert world.holds(world.acquire("c", "h"))


def test_a_drained_group_grants_nothing_more_but_its_holder_goes_on() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    world.do(Drained("g"))
    world.do(Drained("g"))
    waiting = world.acquire("b", "g")
    assert world.holds(world.acquire("a", "g"))
    assert world.waits(waiting).reason == "g is draining"
    assert world.core.view("g", world.now).draining
    world.yield_(held)
    world.yield_("r3")
    assert not world.holds(waiting)
    world.do(Resumed("g"))
    assert world.holds(waiting)


def test_a_group_without_devices_makes_its_requests_wait_with_the_reason() -> None:
    world = World({"g": {"n1": []}})
    assert world.waits(world.acquire("a", "g")).reason == "group g has no devices"
    world.join("b", "g", n1=[])
    assert world.waits(world.acquire("b", "g")).reason == "group g has no devices"


def test_a_view_shows_holders_waiters_and_duty() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.acquire("a", "g")
    world.until(2.0)
    world.acquire("b", "g", holder="host:1 rank 0")
    view = world.core.view("g", 4.0)
    assert [(h.job_id, h.leases, h.held_s) for h in view.holders] == [("a", 2, 4.0)]
    assert view.holders[0].token == 2
    assert [(w.job_id, w.position, w.waited_s, w.holder) for w in view.waiters] == [("b", 1, 2.0, "host:1 rank 0")]
    assert view.devices == (("d1", "n1", True),)
    assert [(p.node, p.state, p.bytes_, p.processes) for p in view.members[0].parts] == [("n1", RUNNING, 1000, 1)]
    assert view.blocked_reason == "held by a"
    assert view.duty_cycle == 1.0
    world.yield_(held)
    world.yield_("r2")
    world.withdraw("r3", "b")
    assert world.core.view("g", 8.0).duty_cycle == pytest.approx(0.25)
    assert world.core.groups() == ["g"]


def test_an_unused_group_has_no_duty() -> None:
    view = World(ONE).core.view("g", 5.0)
    assert view.duty_cycle == 0.0
    assert view.blocked_reason == ""
    with pytest.raises(GroupNotFound):
        World(ONE).core.view("h", 5.0)
