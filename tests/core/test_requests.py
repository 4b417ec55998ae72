"""A request by its id: asked again, left by its client, withdrawn."""

from __future__ import annotations

import pytest
from core_world import ONE, SETTINGS, TWO, World
from timeslice_api.errors import InvalidRequest, NotHolder, RequestEnded
from timeslice_orchestrator.core.effects import Granted
from timeslice_orchestrator.core.events import AcquireRequested, Withdrawn


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
