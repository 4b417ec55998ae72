"""Failures that were measured on a comparable system, each with the outcome that users need instead."""

from __future__ import annotations

import pytest
from core_world import BUSY, LOCKED, NO_MEMORY, ONE, PARKED, RUNNING, SETTINGS, Breakage, World
from timeslice_api.errors import JobNotAdmitted, NotHolder
from timeslice_orchestrator.core.events import Yielded


def pair() -> World:
    world = World(ONE)
    for job in "ab":
        world.join(job, "g", n1=["d1"])
    return world


def test_a_waiter_that_timed_out_is_never_promoted_to_a_holder_that_nobody_is() -> None:
    world = pair()
    held = world.hold("a", "g")
    ghost = world.acquire("b", "g")
    world.withdraw(ghost, "b")
    world.yield_(held)
    again = world.acquire("a", "g")
    assert world.holds(again)
    assert world.core.view("g", world.now).waiters == ()


def test_a_node_that_forgot_its_command_holds_up_no_other_group() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    world.yield_(world.hold("a", "g"))
    stuck = world.acquire("b", "g")
    world.nodes["n1"].inbox.clear()
    assert world.holds(world.acquire("b", "h"))
    world.connect("n1")
    world.run()
    assert world.holds(stuck)


def test_the_first_yield_of_two_ranks_does_not_release_for_both() -> None:
    world = pair()
    first, second = world.acquire("a", "g"), world.acquire("a", "g")
    waiting = world.acquire("b", "g")
    world.yield_(first)
    assert not world.holds(waiting)
    world.yield_(second)
    world.run()
    assert world.holds(waiting)


def test_a_yield_by_a_job_that_never_held_is_refused_even_if_the_group_is_free() -> None:
    with pytest.raises(NotHolder):
        pair().do(Yielded("lease-x", "b"))


def test_a_mistyped_job_name_does_not_evict_the_real_job_where_jobs_are_listed() -> None:
    world = World(ONE, jobs={"g": frozenset({"a", "b"})})
    world.join("a", "g", n1=["d1"])
    world.yield_(world.hold("a", "g"))
    with pytest.raises(JobNotAdmitted):
        world.acquire("job-aa", "g")
    assert world.state("a", "g", "n1") is RUNNING
    assert not world.commands


def test_the_lock_of_a_job_whose_processes_died_is_free_at_once() -> None:
    world = pair()
    world.hold("a", "g")
    waiting = world.acquire("b", "g")
    world.kill("a", "g", "n1")
    world.run()
    assert world.holds(waiting)


def test_a_snapshot_that_fails_leaves_the_old_job_whole_and_able_to_go_on() -> None:
    world = pair()
    world.yield_(world.hold("a", "g"))
    world.break_("a", "g", "n1", Breakage(PARKED, NO_MEMORY))
    waiting = world.acquire("b", "g")
    world.run()
    assert world.state("a", "g", "n1") is RUNNING
    assert not world.holds(waiting)
    assert "needs 4 GB" in world.waits(waiting).reason
    world.withdraw(waiting, "b")
    assert world.holds(world.acquire("a", "g"))


def test_an_idle_neighbour_blocks_nobody_and_is_granted_itself() -> None:
    world = pair()
    world.join("idle", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.yield_(held)
    second = world.hold("b", "g")
    assert world.holds(second)
    world.yield_(second)
    assert world.holds(world.hold("idle", "g"))


def test_a_restart_keeps_the_holder_and_the_place_of_the_waiter() -> None:
    world = pair()
    held = world.hold("a", "g")
    waiting = world.acquire("b", "g")
    world.restart()
    world.acquire("b", "g", request=waiting)
    assert not world.holds(waiting)
    world.yield_(held)
    world.run()
    assert world.holds(waiting)


def test_a_node_that_is_down_at_a_hand_off_leaves_the_old_job_on_all_its_nodes() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in "ab":
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("a", "g"))
    world.lose("n2")
    waiting = world.acquire("b", "g")
    world.run()
    assert [world.state("a", "g", node) for node in world.nodes] == [RUNNING, RUNNING]
    assert world.waits(waiting).reason == "n2 is not connected"
    assert not world.commands


def test_a_waiter_goes_on_as_soon_as_what_held_it_up_has_ended() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.join("b", "g", n1=["d1"])
    world.join("c", "g", n2=["d2"])
    world.yield_(world.hold("a", "g"))
    world.acquire("b", "g")
    waiting = world.acquire("c", "g")
    world.until(20.0)
    world.run()
    assert world.holds(waiting)
    assert world.now == 20.0


def test_one_job_in_a_loop_is_never_parked() -> None:
    world = pair()
    for _ in range(5):
        world.yield_(world.hold("a", "g"))
    assert not world.commands


def test_two_jobs_take_turns() -> None:
    world = pair()
    held = world.hold("a", "g")
    for job in "bababa":
        waiting = world.acquire(job, "g")
        world.yield_(held)
        world.run()
        world.use(waiting)
        held = waiting
    assert world.core.view("g", world.now).totals.handoffs == 6


def test_a_failed_hand_off_is_tried_again_within_the_bound_however_often_it_failed() -> None:
    world = pair()
    world.yield_(world.hold("a", "g"))
    waiting = world.acquire("b", "g")
    for _ in range(50):
        world.break_("a", "g", "n1", Breakage(LOCKED, BUSY))
        world.run()
        world.until(world.now + SETTINGS.retry_max_s)
    world.run()
    assert world.holds(waiting)
