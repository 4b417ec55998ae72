"""Jobs that would wait for each other for ever are refused, and no others."""

from __future__ import annotations

import pytest
from core_world import TWO, World
from timeslice_api.errors import WouldDeadlock


def test_a_circle_of_jobs_that_wait_for_each_other_is_refused_by_its_name() -> None:
    world = World({"trainer": {"n1": ["d1"]}, "sampler": {"n1": ["d2"]}})
    world.acquire("job-a", "trainer")
    world.acquire("job-b", "sampler")
    world.acquire("job-b", "trainer")
    with pytest.raises(WouldDeadlock) as refused:
        world.acquire("job-a", "sampler")
    assert refused.value.message == ("job-a holds trainer, waits for sampler held by job-b, which waits for trainer")


def test_a_circle_over_an_earlier_waiter_is_refused() -> None:
    world = World(TWO)
    world.acquire("a", "g")
    world.acquire("b", "g", "h")
    with pytest.raises(WouldDeadlock, match="a holds g, waits for h behind b, which waits for g"):
        world.acquire("a", "h")


def test_a_circle_of_three_is_refused() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "xyz"})
    for job, held in zip("abc", "xyz", strict=True):
        world.acquire(job, held)
    world.acquire("a", "y")
    world.acquire("b", "z")
    with pytest.raises(
        WouldDeadlock, match="c holds z, waits for x held by a, which waits for y held by b, which waits for z"
    ):
        world.acquire("c", "x")


def test_jobs_that_only_wait_for_each_other_are_no_circle() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "gh"})
    held = [world.acquire("x", "g"), world.acquire("y", "h")]
    waiting = [world.acquire("a", "g"), world.acquire("b", "h"), world.acquire("b", "g"), world.acquire("a", "h")]
    for request in held:
        world.yield_(request)
    assert world.holds(waiting[0])
    assert world.holds(waiting[1])


def test_holding_and_waiting_without_a_circle_is_allowed() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "ghi"})
    world.acquire("a", "g")
    world.acquire("b", "h")
    for job in "cdc":
        world.acquire(job, "h")
    world.acquire("b", "i")
    request = world.acquire("a", "h")
    assert world.waits(request).position == 4


def test_a_waiter_whose_job_grows_over_a_circle_is_refused() -> None:
    world = World({"g": {"n1": ["d1", "d2"]}, "h": {"n1": ["d3"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d2"])
    world.join("c", "g", n1=["d1"])
    world.acquire("c", "g")
    world.acquire("a", "h")
    growing = world.acquire("a", "g")
    world.acquire("b", "g")
    world.acquire("b", "h")
    world.join("a", "g", n1=["d1", "d2"])
    assert isinstance(world.refused[growing], WouldDeadlock)
    assert world.refused[growing].message == "a holds h, waits for g held by b, which waits for h"


def test_a_waiter_that_gets_in_front_of_a_holder_by_growing_is_refused() -> None:
    world = World({"g": {"n1": ["d1", "d2"]}, "h": {"n1": ["d3"]}})
    world.join("a", "g", n1=["d1"])
    world.join("k", "g", n1=["d2"])
    world.join("x", "g", n1=["d2"])
    world.acquire("k", "h")
    both = world.acquire("a", "g", "h")
    world.acquire("x", "g")
    world.acquire("k", "g")
    world.join("a", "g", n1=["d1", "d2"])
    assert world.refused[both].message == "a waits for h held by k, which waits for g behind a"


def test_a_circle_is_found_past_other_requests_of_the_same_jobs() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "ghi"})
    world.acquire("a", "g")
    world.acquire("b", "h")
    for job in ("c", "c", "x", "c", "b"):
        world.acquire(job, "g", "i")
    with pytest.raises(WouldDeadlock, match="a holds g, waits for h held by b, which waits for g"):
        world.acquire("a", "h")


def test_a_long_queue_without_a_circle_is_searched_and_found_sound() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "ghi"})
    for job, group in (("a", "g"), ("b", "h"), ("z", "i")):
        world.acquire(job, group)
    for job in ("c", "c", "x", "c", "b"):
        world.acquire(job, "i")
    assert world.waits(world.acquire("a", "h")).reason == "held by b"


def test_what_was_asked_for_before_a_grant_is_no_part_of_a_circle() -> None:
    world = World(TWO)
    first = world.acquire("x", "g")
    world.acquire("b", "h")
    trainer, sampler = world.acquire("a", "g"), world.acquire("a", "h")
    world.yield_(first)
    assert world.holds(trainer)
    request = world.acquire("b", "g")
    assert world.waits(request).reason == "held by a"
    assert world.waits(sampler).reason == "held by b"


def test_a_rank_that_has_to_queue_again_since_the_other_yielded_is_refused_if_that_closes_a_circle() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "defg"})
    world.acquire("x", "e")
    first, _ = world.acquire("j", "d"), world.acquire("j", "f")
    world.acquire("k", "d", "f")
    other = world.acquire("j", "g", "e")
    rank = world.acquire("j", "d", "e")
    world.yield_(first)
    assert world.refused[rank].message == "j holds f, waits for d behind k, which waits for f"
    assert world.waits(other).reason == "held by x"


def test_a_job_that_stands_twice_in_a_queue_around_another_waits_in_no_circle() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    world.acquire("z", "g")
    world.acquire("c", "h")
    first, between = world.acquire("c", "g"), world.acquire("x", "g")
    last = world.acquire("c", "g")
    assert [world.waits(request).position for request in (first, between, last)] == [1, 2, 3]
