from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import ONE, PARKED, RUNNING, SETTINGS, World
from timeslice_api.errors import GroupNotFound, LeaseLost, NotHolder
from timeslice_orchestrator.core.effects import LeasesChecked, YieldAccepted
from timeslice_orchestrator.core.events import AcquireRequested, ForceReleased, LeasesRenewed, PartsReported, Yielded
from timeslice_orchestrator.core.model import CounterRecord, LeaseTimes, key_of

TTL, GRACE = SETTINGS.lease_ttl_s, SETTINGS.lease_grace_s


def test_the_lease_of_a_job_without_processes_ends_when_it_is_not_renewed() -> None:
    world = World(ONE)
    held, other = world.acquire("a", "g"), world.acquire("b", "g")
    world.until(TTL - 1)
    assert not world.holds(other)
    world.until(TTL)
    assert world.lost[held] == "expired"
    assert world.holds(other)


def test_a_renewed_lease_goes_on() -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    for now in range(10, 200, 10):
        world.until(now)
        assert world.renew(held) == LeasesChecked((), ())
    assert world.holds(held)


def test_the_lease_of_a_job_whose_processes_live_has_a_grace_and_then_its_state_is_parked_by_force() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    other = world.acquire("b", "g")
    world.until(TTL + GRACE - 1)
    assert world.holds(held)
    world.until(TTL + GRACE)
    assert not world.holds(held)
    assert not world.holds(other)
    world.run()
    assert world.state("a", "g", "n1") is PARKED
    assert world.holds(other)


def test_a_group_may_have_lease_times_of_its_own_and_of_several_groups_the_shortest_count() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    world.change_groups(replace(world.specs["g"], lease=LeaseTimes(ttl_s=4, grace_s=2)), world.specs["h"])
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g", "h")
    assert world.leases[held].ttl_s == 4
    world.until(3)
    assert not world.renew(held).lost
    world.until(3 + 4 + 1)
    assert world.holds(held)
    world.until(3 + 4 + 2)
    assert world.lost[held] == "expired"


def test_a_suspect_lease_can_still_be_renewed() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.until(TTL + 1)
    assert not world.renew(held).lost
    world.until(TTL + GRACE + TTL)
    assert world.holds(held)


def test_asking_again_for_a_lease_renews_it() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.until(TTL + 1)
    world.do(AcquireRequested(held, "a", ("g",)))
    world.until(TTL + 1 + TTL + GRACE - 1)
    assert world.holds(held)


def test_a_lease_is_kept_while_a_node_of_its_job_is_not_heard() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.lose("n1")
    world.until(10 * TTL)
    assert world.holds(held)
    world.connect("n1")
    world.until(13 * TTL)
    assert world.lost[held] == "expired"


def test_a_renewal_tells_what_is_lost_and_what_others_want() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    first, second = world.acquire("a", "g"), world.acquire("a", "h")
    other = world.acquire("b", "h")
    lost = "lease-never"
    effects = world.do(LeasesRenewed("a", ("lease-" + first, "lease-" + second, lost)))
    assert LeasesChecked((lost,), ("lease-" + second,)) in effects
    assert LeasesChecked(("lease-" + first,), ()) in world.do(LeasesRenewed("b", ("lease-" + first,)))
    assert LeasesChecked(("lease-" + other,), ()) in world.do(LeasesRenewed("b", ("lease-" + other,)))


def test_the_leases_of_a_job_whose_processes_all_ended_end_at_once() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}, "h": {"n1": ["d3"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.join("a", "h", n1=["d3"])
    both, only = world.acquire("a", "g", "h"), world.acquire("a", "h")
    world.kill("a", "g", "n1")
    world.kill("a", "g", "n2")
    assert world.holds(both)
    world.kill("a", "h", "n1")
    assert world.lost == {both: "its processes ended", only: "its processes ended"}
    effects = world.do(Yielded("lease-" + both, "a"))
    assert YieldAccepted("lease-" + both, 0, already_yielded=True) in effects


def test_a_lease_ends_with_the_process_that_asked_although_others_of_its_job_live() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    first, second = (world.acquire("a", "g", process=f"n1/{pid}/9") for pid in (1, 2))
    other = world.acquire("b", "g")
    world.do(PartsReported("n1", ended_processes=("n1/1/9", "n1/7/9")))
    assert world.lost == {first: "its processes ended"}
    assert world.holds(second)
    world.do(PartsReported("n1", ended_processes=("n1/2/9",)))
    world.run()
    assert world.holds(other)


def test_a_waiter_leaves_with_the_process_that_asked() -> None:
    world = World(ONE)
    world.acquire("a", "g")
    gone = [world.acquire("b", "g", process="n1/1/9") for _ in range(2)]
    stays = world.acquire("b", "g", process="n1/2/9")
    world.do(PartsReported("n1", ended_processes=("n1/1/9",)))
    assert [request for request in (*gone, stays) if request in world.core._books.requests] == [stays]


def test_after_a_restart_a_waiter_tells_anew_which_process_it_is() -> None:
    world = World(ONE)
    world.acquire("a", "g")
    waiting = world.acquire("b", "g", process="n1/1/9")
    world.restart()
    world.do(PartsReported("n1", ended_processes=("n1/1/9",)))
    assert world.waits(waiting)
    world.acquire("b", "g", request=waiting, process="n1/1/9")
    world.do(PartsReported("n1", ended_processes=("n1/1/9",)))
    with pytest.raises(KeyError):
        world.waits(waiting)


def test_a_lease_that_was_granted_before_any_process_came_is_not_ended_by_another_groups_processes() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d3"]}})
    world.join("a", "h", n1=["d3"])
    held = world.acquire("a", "g")
    world.kill("a", "h", "n1")
    assert world.holds(held)


def test_a_second_yield_is_accepted_as_a_repetition() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    assert not world.yield_(request).already_yielded
    assert YieldAccepted("lease-" + request, 0, already_yielded=True) in world.do(Yielded("lease-" + request, "a"))


def test_a_yield_after_a_withdrawal_is_accepted() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.withdraw(request, "a")
    assert YieldAccepted("lease-" + request, 0, already_yielded=True) in world.do(Yielded("lease-" + request, "a"))


def test_a_yield_of_a_lease_that_was_taken_away_says_so() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.until(TTL)
    with pytest.raises(LeaseLost, match="expired"):
        world.do(Yielded("lease-" + request, "a"))


@pytest.mark.parametrize(
    ("lease", "job"), [("lease-never", "a"), ("r1", "a"), ("lease-r1", "b"), ("lease-r2", "b"), ("", "a")]
)
def test_a_yield_by_one_who_does_not_hold_is_refused_and_changes_nothing(lease: str, job: str) -> None:
    world = World(ONE)
    held = world.acquire("a", "g")
    world.acquire("b", "g")
    with pytest.raises(NotHolder):
        world.do(Yielded(lease, job))
    assert world.renew(held).lost == ()


def test_another_job_cannot_yield_what_has_ended() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.yield_(request)
    with pytest.raises(NotHolder):
        world.do(Yielded("lease-" + request, "b"))


def test_a_request_that_left_the_queue_never_had_a_lease_to_yield() -> None:
    world = World(ONE)
    world.acquire("a", "g")
    request = world.acquire("b", "g")
    world.detach(request)
    world.until(SETTINGS.waiter_grace_s)
    with pytest.raises(NotHolder):
        world.do(Yielded("lease-" + request, "b"))


def test_an_admin_takes_a_jobs_leases_in_a_group_away() -> None:
    world = World({"g": {"n1": ["d1", "d2"]}, "h": {"n1": ["d3"]}})
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d2"])
    first, second = world.hold("a", "g"), world.hold("b", "g")
    elsewhere = world.hold("a", "h")
    other = world.acquire("c", "g")
    world.do(ForceReleased("g", "a"))
    assert world.lost == {first: "released by force"}
    assert world.holds(elsewhere)
    with pytest.raises(LeaseLost, match="released by force"):
        world.do(Yielded("lease-" + first, "a"))
    world.do(ForceReleased("g", "nobody"))
    world.do(ForceReleased("g"))
    assert second in world.lost
    assert world.state("a", "g", "n1") is RUNNING
    world.run()
    assert world.holds(other)
    with pytest.raises(GroupNotFound):
        world.do(ForceReleased("x"))


def test_tokens_rise_with_every_grant_and_command_and_are_saved_with_it() -> None:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    tokens = []
    for job in "aba":
        request = world.hold(job, "g")
        tokens.append(world.leases[request].token)
        world.yield_(request)
    assert tokens == sorted(set(tokens))
    counters = world.store[key_of(CounterRecord())]
    assert isinstance(counters, CounterRecord)
    assert counters.token == tokens[-1]


def test_only_the_newest_ended_requests_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timeslice_orchestrator.core.books.ENDED_KEPT", 2)
    world = World(ONE)
    for _ in range(3):
        world.yield_(world.acquire("a", "g"))
    assert list(world.core._books.ended) == ["r2", "r3"]
    world.do(AcquireRequested("r1", "a", ("g",)))
    assert world.holds("r1")
