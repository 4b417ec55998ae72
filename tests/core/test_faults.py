"""What breaks during a hand-off is undone: nothing is lost, and the reason is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import BUSY, EMPTY, FAILED, LOCKED, NO_MEMORY, PARKED, RUNNING, SETTINGS, Breakage, World
from timeslice_api.errors import JobQuarantined, OperationFailed
from timeslice_orchestrator.core.events import CommandDone, PartsReported
from timeslice_orchestrator.core.model import Fault, MemberKey, PartReport, QuarantineRecord

A, B = MemberKey("a", "g"), MemberKey("b", "g")


def one_node() -> World:
    """Job a is resident, job b parked, on one device; job c has done nothing yet."""
    world = World({"g": {"n1": ["d1"]}})
    for job in "abc":
        world.join(job, "g", n1=["d1"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    return world


def two_nodes() -> World:
    """Job a is resident on both nodes, job b parked there."""
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in "ab":
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    return world


def states(world: World, job: str) -> list[object]:
    return [world.state(job, "g", node) for node in world.nodes]


def test_a_lock_that_fails_on_one_node_is_undone_on_the_other_and_tried_again_later() -> None:
    world = two_nodes()
    world.break_("a", "g", "n2", Breakage(LOCKED, BUSY))
    request = world.acquire("b", "g")
    world.run()
    assert states(world, "a") == [RUNNING, RUNNING]
    assert states(world, "b") == [PARKED, PARKED]
    assert world.waits(request).reason == "a on n2: its kernels run on"
    assert world.core.view("g", world.now).blocked_reason == "a on n2: its kernels run on"
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_a_restore_that_fails_on_one_node_parks_what_had_come_and_restores_what_had_left() -> None:
    world = two_nodes()
    world.break_("b", "g", "n2", Breakage(LOCKED, BUSY))
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.answer("n1", "n2")
    assert [world.state(job, "g", "n1") for job in "ab"] == [PARKED, LOCKED]
    world.run()
    assert states(world, "a") == [RUNNING, RUNNING]
    assert states(world, "b") == [PARKED, PARKED]
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_an_unlock_that_fails_parks_what_runs_already() -> None:
    world = two_nodes()
    world.break_("b", "g", "n2", Breakage(RUNNING, BUSY))
    world.acquire("b", "g")
    world.run()
    assert states(world, "a") == [RUNNING, RUNNING]
    assert states(world, "b") == [PARKED, PARKED]


def test_what_was_parked_before_a_hand_off_stays_parked_when_it_is_undone() -> None:
    world = two_nodes()
    world.nodes["n1"].parts[A].state = PARKED
    world.connect("n1")
    world.break_("b", "g", "n2", Breakage(LOCKED, BUSY))
    world.acquire("b", "g")
    world.run()
    assert states(world, "a") == [PARKED, RUNNING]
    assert states(world, "b") == [PARKED, PARKED]


def test_what_was_locked_before_a_hand_off_is_locked_after_it_was_undone() -> None:
    world = two_nodes()
    for node in world.nodes:
        world.nodes[node].parts[A].state = LOCKED
        world.connect(node)
    world.break_("b", "g", "n2", Breakage(LOCKED, BUSY))
    world.acquire("b", "g")
    world.run()
    assert states(world, "a") == [LOCKED, LOCKED]


def test_one_node_undoes_all_in_one_command() -> None:
    world = one_node()
    world.break_("b", "g", "n1", Breakage(LOCKED, BUSY))
    world.acquire("b", "g")
    world.answer("n1")
    assert states(world, "a") == [PARKED]
    assert world.commands[-1].targets == ((A, RUNNING),)
    world.answer("n1")
    assert states(world, "a") == [RUNNING]


def test_the_waits_between_tries_grow_up_to_their_bound_and_start_anew_after_a_success() -> None:
    world = one_node()
    request = world.acquire("b", "g")
    waits = []
    for _ in range(8):
        world.break_("a", "g", "n1", Breakage(LOCKED, BUSY))
        world.run()
        assert world.wake_at is not None
        waits.append(round(world.core._books.devices["d1"].retry_at - world.now, 6))
        world.until(world.core._books.devices["d1"].retry_at)
    assert waits == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 10.0, 10.0]
    world.run()
    assert world.holds(request)
    assert world.core._books.devices["d1"].failures == 0


def test_a_park_that_is_refused_for_good_keeps_the_waiter_with_the_reason() -> None:
    world = one_node()
    world.break_("a", "g", "n1", Breakage(PARKED, NO_MEMORY))
    request = world.acquire("b", "g")
    world.run()
    assert world.waits(request).reason == "a on n1: needs 4 GB, has 1 GB"
    world.until(SETTINGS.retry_max_s - 0.1)
    assert not world.nodes["n1"].inbox
    world.until(SETTINGS.retry_max_s)
    world.run()
    assert world.holds(request)


@pytest.mark.parametrize("ends", ["a", "c"])  # what could not be parked, or what took the memory that it lacked
def test_a_hand_off_that_was_refused_for_good_is_tried_at_once_when_a_job_there_ends(ends: str) -> None:
    world = one_node()
    world.break_("a", "g", "n1", Breakage(PARKED, NO_MEMORY))
    request = world.acquire("b", "g")
    world.run()
    world.kill(ends, "g", "n1")
    world.run()
    assert world.holds(request)
    assert world.now == 0.0


def test_a_hand_off_over_several_nodes_is_tried_at_once_when_the_part_that_it_failed_on_ends() -> None:
    world = two_nodes()
    world.break_("a", "g", "n2", Breakage(PARKED, NO_MEMORY))
    request = world.acquire("b", "g")
    world.run()
    world.kill("a", "g", "n2")
    world.run()
    assert world.holds(request)
    assert world.now == 0.0


def test_a_part_that_ends_while_its_fault_is_being_undone_makes_nobody_wait_long() -> None:
    world = two_nodes()
    world.break_("a", "g", "n2", Breakage(PARKED, NO_MEMORY))
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.answer("n2")
    world.kill("a", "g", "n2")
    world.run()
    assert not world.holds(request)
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_a_restore_that_is_refused_for_good_refuses_the_request_and_serves_the_others() -> None:
    world = one_node()
    world.break_("b", "g", "n1", Breakage(LOCKED, NO_MEMORY))
    request, other = world.acquire("b", "g"), world.acquire("c", "g")
    world.run()
    error = world.refused[request]
    assert isinstance(error, OperationFailed)
    assert (error.reason, error.hint, error.message) == (
        "HostMemory",
        "raise the limit",
        "b on n1: needs 4 GB, has 1 GB",
    )
    assert world.holds(other)
    with pytest.raises(OperationFailed):
        world.acquire("b", "g", request=request)


def test_a_refused_restore_leaves_other_requests_of_the_job_in_other_groups() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    world.join("b", "g", n1=["d1"])
    world.nodes["n1"].parts[B].state = PARKED
    world.connect("n1")
    world.acquire("x", "h")
    elsewhere = world.acquire("b", "h")
    world.break_("b", "g", "n1", Breakage(LOCKED, NO_MEMORY))
    request = world.acquire("b", "g")
    world.run()
    assert request in world.refused
    assert world.waits(elsewhere).reason == "held by x"


def test_why_a_hand_off_was_rolled_back_is_seen_until_one_succeeds_or_nobody_waits() -> None:
    world = one_node()
    world.break_("a", "g", "n1", Breakage(PARKED, NO_MEMORY))
    request = world.acquire("b", "g")
    world.run()
    (setback,) = world.core.view("g", world.now).setbacks
    assert (setback.job_id, setback.fault.reason, setback.fault.message) == (
        "a",
        "HostMemory",
        "a on n1: needs 4 GB, has 1 GB",
    )
    assert world.withdraw(request, "b")
    assert world.core.view("g", world.now).setbacks == ()
    request = world.acquire("b", "g")
    assert world.core.view("g", world.now).setbacks == (setback,)
    world.until(SETTINGS.retry_max_s)
    world.run()
    assert world.holds(request)
    world.acquire("c", "g")
    assert world.core.view("g", world.now).setbacks == ()


def test_the_fault_of_what_leaves_is_told_rather_than_that_of_what_could_not_come_therefore() -> None:
    world = one_node()
    request = world.acquire("b", "g")
    stays, comes = replace(BUSY, message="stays"), Fault("DeviceMemory", "no room", retryable=False)
    command = world.nodes["n1"].inbox.popleft()
    parts = [
        PartReport(B, frozenset({"d1"}), PARKED, False, comes),
        PartReport(A, frozenset({"d1"}), RUNNING, True, stays),
    ]
    world.do(CommandDone("n1", command.command_id, tuple(parts)))
    assert world.waits(request).reason == "a on n1: stays"
    assert request not in world.refused


def test_a_part_that_misses_its_target_without_a_word_is_tried_again() -> None:
    world = one_node()
    request = world.acquire("b", "g")
    command = world.nodes["n1"].inbox.popleft()
    world.do(CommandDone("n1", command.command_id, tuple(map(world.nodes["n1"].report, (A, B)))))
    assert world.waits(request).reason == "a on n1 is running, not parked"
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_a_command_that_is_refused_as_stale_is_tried_again_with_a_newer_token() -> None:
    world = one_node()
    request = world.acquire("b", "g")
    command = world.nodes["n1"].inbox.popleft()
    world.do(CommandDone("n1", command.command_id, refused=Fault("StaleToken", "token 3 is older than 9")))
    assert world.waits(request).reason == "token 3 is older than 9"
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_a_part_that_ends_while_it_is_parked_is_out_of_the_way() -> None:
    world = one_node()
    request = world.acquire("c", "g")
    del world.nodes["n1"].parts[A]
    world.run()
    assert world.holds(request)


def test_a_member_that_ended_during_its_hand_off_was_reported_before_the_answer() -> None:
    world = one_node()
    request = world.acquire("c", "g")
    world.kill("a", "g", "n1")
    world.run()
    assert world.holds(request)


def test_a_part_that_failed_on_its_devices_blocks_them_until_it_ends() -> None:
    world = one_node()
    world.break_("a", "g", "n1", Breakage(PARKED, None, resident=True))
    request = world.acquire("b", "g")
    world.run()
    world.until(SETTINGS.retry_max_s)
    assert world.waits(request).reason == "the state of a cannot leave d1: the driver gave up"
    assert states(world, "b") == [PARKED]
    world.kill("a", "g", "n1")
    world.run()
    assert world.holds(request)


def test_a_failed_part_says_so_even_if_its_node_does_not_know_why() -> None:
    world = one_node()
    failed = PartReport(A, frozenset({"d1"}), FAILED, resident=True)
    world.do(PartsReported("n1", (failed,)))
    assert world.waits(world.acquire("b", "g")).reason == "the state of a cannot leave d1: it failed"
    with pytest.raises(JobQuarantined, match="failed on n1"):
        world.acquire("a", "g")


def test_a_part_that_failed_off_its_devices_does_not_hold_up_the_others() -> None:
    world = one_node()
    world.break_("a", "g", "n1", Breakage(PARKED, None, resident=False))
    request = world.acquire("b", "g")
    world.run()
    assert world.holds(request)
    assert world.core.view("g", world.now).members[0].quarantine_reason == "the driver gave up"


def test_a_job_whose_restore_destroyed_its_state_is_refused_and_the_others_go_on_at_once() -> None:
    world = one_node()
    world.break_("b", "g", "n1", Breakage(LOCKED, None))
    request, other = world.acquire("b", "g"), world.acquire("c", "g")
    world.run()
    assert isinstance(world.refused[request], JobQuarantined)
    assert world.holds(other)
    with pytest.raises(JobQuarantined, match="the driver gave up"):
        world.acquire("b", "g")


def test_a_quarantine_refuses_only_what_names_the_group() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    world.acquire("x", "h")
    world.acquire("y", "g")
    here, elsewhere = world.acquire("a", "g"), world.acquire("a", "h")
    world.do(PartsReported("n1", (PartReport(A, frozenset({"d1"}), FAILED, resident=False),)))
    assert isinstance(world.refused[here], JobQuarantined)
    assert world.waits(elsewhere)


def test_a_quarantine_ends_when_the_driver_tells_the_state_again() -> None:
    world = one_node()
    world.do(PartsReported("n1", (PartReport(A, frozenset({"d1"}), FAILED, resident=False),)))
    assert QuarantineRecord(A, "failed on n1") in world.store.values()
    with pytest.raises(JobQuarantined):
        world.acquire("a", "g")
    world.nodes["n1"].parts[A].state = PARKED
    world.do(PartsReported("n1", (world.nodes["n1"].report(A),)))
    request = world.hold("a", "g")
    assert world.holds(request)
    assert not [record for record in world.store.values() if isinstance(record, QuarantineRecord)]


def test_a_quarantine_ends_when_what_failed_has_ended_although_the_job_goes_on_elsewhere() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    for node in ("n1", "n2"):
        world.nodes[node].parts[A].state = FAILED
        world.do(PartsReported(node, (world.nodes[node].report(A),)))
    world.nodes["n1"].parts[A].state = EMPTY  # its process has ended, and another one of the job has come
    world.do(PartsReported("n1", (world.nodes["n1"].report(A),)))
    with pytest.raises(JobQuarantined):
        world.acquire("a", "g")
    world.kill("a", "g", "n2")
    world.run()
    request = world.acquire("a", "g")
    world.run()
    assert world.holds(request)


def test_a_quarantine_ends_with_its_member() -> None:
    world = one_node()
    world.do(PartsReported("n1", (PartReport(A, frozenset({"d1"}), FAILED, resident=False),)))
    world.kill("a", "g", "n1")
    world.join("a", "g", n1=["d1"])
    request = world.acquire("a", "g")
    world.run()
    assert world.holds(request)


def test_a_way_back_that_fails_too_is_left_for_the_next_acquire() -> None:
    world = one_node()
    world.break_("b", "g", "n1", Breakage(LOCKED, BUSY))
    request = world.acquire("b", "g")
    world.answer("n1")
    world.break_("a", "g", "n1", Breakage(LOCKED, BUSY))
    world.run()
    assert states(world, "a") == [PARKED]
    world.withdraw(request, "b")
    again = world.acquire("a", "g")
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(again)
    assert world.grants[-1].restored


def test_an_idle_answer_with_a_fault_is_not_believed() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.join("a", "g", n1=["d1"])
    world.yield_(world.acquire("a", "g"))
    request = world.acquire("b", "g")
    command = world.nodes["n1"].inbox.popleft()
    world.do(CommandDone("n1", command.command_id, (PartReport(A, frozenset({"d1"}), EMPTY, False, BUSY),)))
    assert not world.holds(request)
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_a_node_that_does_not_answer_is_named_but_not_taken_to_have_failed() -> None:
    world = one_node()
    request = world.acquire("b", "g")
    world.until(3.0)
    told = "n1 was told 3 s ago (a parked, b running)"
    assert world.waits(request).reason == f"a hand-off to b is under way: {told}"
    view = world.core.view("g", world.now)
    assert (view.switching_to, view.under_way, view.blocked_reason) == ("b", told, "")
    world.until(SETTINGS.command_timeout_s + 10)
    assert world.waits(request).reason == "n1 has not answered for 130 s"
    world.run()
    assert world.holds(request)


def test_of_several_nodes_the_one_that_is_waited_for_longest_is_named() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    assert world.waits(request).reason.endswith(": n1 was told 0 s ago (a locked), and 1 other nodes")
    world.answer("n1")
    world.until(2.0)
    assert world.core.view("g", world.now).under_way == "n2 was told 2 s ago (a locked)"


def test_between_its_commands_a_hand_off_is_under_way_all_the_same() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    for node in ("n1", "n2"):
        world.lose(node)
    assert world.core.view("g", world.now).under_way == ""
    assert world.waits(request).reason.endswith("is not connected")


def test_a_fault_is_shown_while_the_hand_off_goes_back() -> None:
    world = two_nodes()
    world.break_("a", "g", "n1", Breakage(LOCKED, BUSY))
    request = world.acquire("b", "g")
    world.answer("n1")
    assert world.waits(request).reason == "a on n1: its kernels run on"
