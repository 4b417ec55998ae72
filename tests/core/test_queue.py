from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import RUNNING, SETTINGS, World
from timeslice_api.errors import (
    GroupNotFound,
    InvalidRequest,
    JobNotAdmitted,
    NotHolder,
    QueueFull,
    RequestEnded,
    WouldDeadlock,
)
from timeslice_orchestrator.core.effects import Granted
from timeslice_orchestrator.core.events import AcquireRequested, Drained, Resumed, Withdrawn

ONE = {"g": {"n1": ["d1"]}}
TWO = {"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}}


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


def test_asking_again_gives_the_same_lease() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.acquire("a", "g", request=request)
    assert [type(grant) for grant in world.grants] == [Granted, Granted]
    assert world.grants[0] == world.grants[1]


def test_asking_again_keeps_the_place() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    second, third = world.acquire("b", "g"), world.acquire("c", "g")
    world.detach(second)
    world.acquire("b", "g", request=second)
    world.acquire("b", "g", request=second)
    assert world.waits(second).position == 1
    world.yield_(held)
    assert world.holds(second)
    assert not world.holds(third)


@pytest.mark.parametrize(("job", "groups", "field"), [("x", ("g",), "job_id"), ("a", ("h",), "group_ids")])
def test_a_request_id_with_another_content_is_refused_by_naming_the_field(
    job: str, groups: tuple[str], field: str
) -> None:
    world = World(TWO)
    request = world.acquire("a", "g")
    with pytest.raises(InvalidRequest, match=field):
        world.acquire(job, *groups, request=request)


@pytest.mark.parametrize(
    ("event", "field"),
    [(("r", "", ("g",)), "job_id"), (("r", "a", ()), "group_ids"), (("", "a", ("g",)), "request_id")],
)
def test_an_empty_field_is_named(event: tuple[str, str, tuple[str, ...]], field: str) -> None:
    world = World(ONE)
    with pytest.raises(InvalidRequest, match=f"{field} is empty"):
        world.do(AcquireRequested(*event))


def test_a_request_that_has_ended_gets_no_second_lease() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.yield_(request)
    with pytest.raises(RequestEnded):
        world.acquire("a", "g", request=request)


def test_a_waiter_whose_client_is_gone_leaves_the_queue_after_its_grace() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    ghost, other = world.acquire("b", "g"), world.acquire("c", "g")
    world.detach(ghost)
    world.yield_(held)
    assert not world.holds(other)
    assert world.core.view("g", world.now).blocked_reason == "its client is away"
    world.until(SETTINGS.waiter_grace_s)
    assert world.holds(other)
    with pytest.raises(RequestEnded, match="left by its client"):
        world.acquire("b", "g", request=ghost)


def test_a_client_that_is_back_in_time_is_served_at_once() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    request = world.acquire("b", "g")
    world.detach(request)
    world.yield_(held)
    world.until(2.0)
    world.acquire("b", "g", request=request)
    assert world.holds(request)
    world.until(SETTINGS.waiter_grace_s + 1)
    assert world.holds(request)


def test_a_client_that_went_away_again_has_a_whole_grace_again() -> None:
    world = World(ONE)
    world.acquire("a", "g")
    request = world.acquire("b", "g")
    world.detach(request)
    world.until(4.0)
    world.acquire("b", "g", request=request)
    world.until(4.5)
    world.detach(request)
    world.until(9.0)
    assert world.waits(request).position == 1
    world.until(9.5)
    with pytest.raises(KeyError):
        world.waits(request)


def test_a_waiter_that_was_back_before_its_grace_is_not_removed_by_the_old_timer() -> None:
    world = World(ONE)
    world.acquire("a", "g")
    request = world.acquire("b", "g")
    world.detach(request)
    world.acquire("b", "g", request=request)
    world.until(20.0)
    assert world.waits(request).waited_s == 20.0


def test_detaching_what_does_not_wait_changes_nothing() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.detach(request)
    world.detach("never")
    assert world.holds(request)
    with pytest.raises(KeyError):
        world.waits(request)


def test_a_withdrawn_request_leaves_the_queue() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    second, third = world.acquire("b", "g"), world.acquire("c", "g")
    assert world.withdraw(second, "b")
    assert not world.withdraw(second, "b")
    world.yield_(held)
    assert world.holds(third)


def test_withdrawing_a_granted_request_gives_its_lease_back() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    other = world.acquire("b", "g")
    assert world.withdraw(held, "a")
    assert world.holds(other)


def test_a_withdrawal_that_overtook_its_acquire_still_counts() -> None:
    world = World(ONE)
    assert not world.withdraw("r7", "a")
    with pytest.raises(RequestEnded, match="withdrawn"):
        world.acquire("a", "g", request="r7")


def test_another_job_cannot_withdraw_a_request() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    with pytest.raises(NotHolder):
        world.do(Withdrawn(request, "b"))
    assert world.holds(request)


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(GroupNotFound, match="'nowhere'"):
        World(ONE).acquire("a", "nowhere")


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


def test_a_circle_is_found_past_other_requests_of_the_same_jobs() -> None:
    world = World({name: {"n1": [f"d{name}"]} for name in "ghi"})
    world.acquire("a", "g")
    world.acquire("b", "h")
    for job in ("c", "c", "x", "c", "b"):
        world.acquire(job, "g", "i")
    with pytest.raises(WouldDeadlock, match="a holds g, waits for h held by b, which waits for g"):
        world.acquire("a", "h")


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
