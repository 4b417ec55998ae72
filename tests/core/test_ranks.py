"""Several requests of one job: what it holds already, the job does not queue for."""

from __future__ import annotations

from core_world import ONE, World


def test_other_ranks_of_a_holder_join_it_past_the_queue_and_the_last_yield_frees() -> None:
    world = World(ONE)
    ranks = [world.acquire("a", "g")]
    other = world.acquire("b", "g")
    ranks.append(world.acquire("a", "g"))
    assert world.holds(ranks[1])
    world.yield_(ranks[0])
    assert not world.holds(other)
    world.yield_(ranks[1])
    assert world.holds(other)


def test_a_rank_that_comes_while_others_hold_joins_them_past_those_who_wait_for_them() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d1"], n2=["d2"])
    first = world.acquire("a", "g")
    waiting = world.acquire("b", "g")
    world.join("a", "g", n2=["d2"])
    second = world.acquire("a", "g")
    assert world.holds(second)
    world.yield_(first)
    assert not world.holds(waiting)
    world.yield_(second)
    world.run()
    assert world.holds(waiting)


def test_a_rank_passes_those_who_wait_for_its_job_also_when_the_part_that_holds_has_gone() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d1"], n2=["d2"])
    first = world.acquire("a", "g")
    waiting = world.acquire("b", "g")
    world.join("a", "g", n2=["d2"])
    world.kill("a", "g", "n1")
    second = world.acquire("a", "g")
    assert world.holds(second)
    world.yield_(second)
    assert not world.holds(waiting)
    world.yield_(first)
    world.run()
    assert world.holds(waiting)


def test_a_rank_that_joins_passes_also_those_who_are_behind_one_that_waits_for_its_job() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d1"], n2=["d2"])
    world.join("c", "g", n2=["d2"])
    first, waiting, behind = (world.acquire(job, "g") for job in "abc")
    world.join("a", "g", n2=["d2"])
    second = world.acquire("a", "g")
    assert world.holds(second)
    for request in (first, second):
        world.yield_(request)
    world.run()
    assert world.holds(waiting)
    world.yield_(waiting)
    world.run()
    assert world.holds(behind)


def test_a_rank_that_comes_later_waits_for_who_holds_its_device_and_then_passes_those_who_wait_for_its_job() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d1"], n2=["d2"])
    world.join("c", "g", n2=["d2"])
    first, other = world.hold("a", "g"), world.hold("c", "g")
    waiting = world.acquire("b", "g")
    world.join("a", "g", n2=["d2"])
    second = world.acquire("a", "g")
    assert world.waits(second).reason == "held by c"
    world.yield_(other)
    world.run()
    assert world.holds(second)
    assert not world.holds(waiting)
    for request in (first, second):
        world.yield_(request)
    world.run()
    assert world.holds(waiting)


def test_a_job_that_holds_a_part_of_what_it_asks_queues_for_the_rest_only() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    first = world.acquire("a", "g")
    waiting = world.acquire("b", "g")
    both = world.acquire("a", "g", "h")
    assert world.holds(both)
    world.yield_(first)
    assert not world.holds(waiting)
    world.yield_(both)
    assert world.holds(waiting)


def test_ranks_that_wait_behind_their_own_job_wait_for_the_same_others() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    world.acquire("x", "g")
    world.acquire("y", "h")
    first = world.acquire("a", "g")
    world.acquire("b", "h")
    second = world.acquire("a", "g", "h")
    assert [world.waits(request).reason for request in (first, second)] == ["held by x", "held by x"]
    world.yield_("r1")
    assert world.holds(first)
    assert world.waits(second).reason == "held by y"
    world.yield_("r2")
    assert world.waits(second).reason == "held by b"
