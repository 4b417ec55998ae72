from __future__ import annotations

from core_world import BUSY, EMPTY, LOCKED, PARKED, RUNNING, SETTINGS, Breakage, SimPart, World
from timeslice_orchestrator.core.events import NodeConnected, NodeLost, PartsReported, Yielded
from timeslice_orchestrator.core.model import GroupSpec, MemberKey, PartReport

A, B = MemberKey("a", "g"), MemberKey("b", "g")


def two_nodes() -> World:
    """Job a is resident on both nodes, job b parked there."""
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in "ab":
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    return world


def test_nothing_is_granted_on_a_node_that_is_not_heard() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.lose("n1")
    request = world.acquire("a", "g")
    assert world.waits(request).reason == "n1 is not connected"
    assert world.core.view("g", world.now).devices == (("d1", "n1", False),)
    world.connect("n1")
    assert world.holds(request)


def test_a_job_is_not_granted_while_a_node_of_its_other_parts_is_not_heard() -> None:
    world = two_nodes()
    world.lose("n2")
    assert world.waits(world.acquire("a", "g")).reason == "n2 is not connected"


def test_a_node_with_parts_outside_all_groups_must_be_heard_too() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=[])
    world.lose("n2")
    assert world.waits(world.acquire("a", "g")).reason == "n2 is not connected"


def test_a_member_is_not_parked_while_one_of_its_nodes_is_not_heard() -> None:
    world = two_nodes()
    world.join("c", "g", n1=["d1"])
    world.lose("n2")
    request = world.acquire("c", "g")
    assert world.waits(request).reason == "n2 is not connected"
    assert not world.nodes["n1"].inbox
    world.connect("n2")
    world.run()
    assert world.holds(request)


def test_a_cut_link_changes_nothing_for_a_holder() -> None:
    world = two_nodes()
    request = world.hold("a", "g")
    world.lose("n1")
    assert world.holds(request)
    world.connect("n1")
    assert world.holds(request)
    assert not world.nodes["n1"].inbox


def test_a_node_lost_while_all_are_locked_has_the_others_unlocked() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1")
    world.lose("n2")
    world.run()
    assert world.state("a", "g", "n1") is RUNNING
    assert world.waits(request).reason == "n2 is not connected"
    world.connect("n2")
    world.until(SETTINGS.retry_min_s)
    world.run()
    assert world.holds(request)


def test_a_node_lost_while_another_still_locks_is_waited_for_in_order() -> None:
    world = two_nodes()
    world.acquire("b", "g")
    world.lose("n2")
    world.lose("n1")
    world.connect("n1")
    world.connect("n2")
    world.run()
    assert world.state("a", "g", "n1") is RUNNING
    assert world.state("a", "g", "n2") is RUNNING


def test_a_node_lost_after_it_had_locked_is_unlocked_once_it_is_back() -> None:
    world = two_nodes()
    world.acquire("b", "g")
    world.answer("n2")
    world.lose("n2")
    world.run()
    assert world.state("a", "g", "n2") is LOCKED
    assert world.core.view("g", world.now).switching_to == "b"
    world.connect("n2")
    world.run()
    assert world.state("a", "g", "n2") is RUNNING


def test_a_node_lost_while_it_swaps_is_waited_for_and_the_hand_off_goes_on_from_its_states() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.nodes["n2"].execute()
    world.lose("n2")
    world.run()
    assert world.waits(request).reason == "n2 is not connected"
    assert world.state("b", "g", "n1") is LOCKED
    world.connect("n2")
    world.run()
    assert world.holds(request)


def test_a_command_that_never_arrived_is_sent_anew_after_the_hello() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.join("a", "g", n1=["d1"])
    world.yield_(world.hold("a", "g"))
    request = world.acquire("b", "g")
    world.lose("n1")
    world.connect("n1")
    assert [c.targets for c in world.nodes["n1"].inbox] == [((A, PARKED),)]
    world.run()
    assert world.holds(request)


def test_a_second_hello_without_a_loss_is_the_same() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.connect("n1")
    assert len(world.nodes["n1"].inbox) == 1
    world.run()
    assert world.holds(request)


def test_a_hello_that_says_unlocked_again_has_the_hand_off_lock_again() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.nodes["n2"].parts[A].state = RUNNING
    world.connect("n2")
    world.run()
    assert world.holds(request)


def test_parts_that_a_hello_does_not_name_have_ended() -> None:
    world = two_nodes()
    held = world.hold("a", "g")
    for node in world.nodes:
        del world.nodes[node].parts[A]
        world.lose(node)
        world.connect(node)
    assert world.lost[held] == "its processes ended"
    request = world.acquire("b", "g")
    world.run()
    assert world.holds(request)


def test_a_hello_lifts_the_tokens_above_what_the_node_has_seen() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.do(NodeConnected("n1", highest_token=1000))
    request = world.acquire("a", "g")
    assert world.leases[request].token == 1001


def test_a_hello_with_an_old_token_changes_no_counter() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.yield_(world.acquire("a", "g"))
    world.do(NodeConnected("n1", highest_token=1))
    assert world.leases[world.acquire("a", "g")].token == 2


def test_a_node_that_was_never_heard_of_may_be_lost_and_report() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.do(NodeLost("n9"))
    world.do(PartsReported("n9", (PartReport(B, frozenset({"d9"}), RUNNING, resident=True),), (A,)))
    request = world.acquire("b", "g")
    assert world.waits(request).reason == "device d9 is in no group"


def test_a_report_of_the_same_changes_nothing() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.join("a", "g", n1=["d1"])
    assert world.do(PartsReported("n1", (world.nodes["n1"].report(A),))) == []


def test_a_waiter_wants_what_its_member_has_when_its_processes_come_and_go() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}, "h": {"n1": ["d3"]}})
    world.join("x", "g", n1=["d1"])
    world.join("y", "g", n2=["d2"])
    first, second = world.acquire("x", "g"), world.acquire("y", "g")
    elsewhere = world.acquire("a", "h")
    request = world.acquire("a", "g")
    world.join("a", "g", n1=["d1"])
    world.yield_(second)
    assert not world.holds(request)
    world.kill("a", "g", "n1")
    world.join("a", "g", n2=["d2"])
    world.run()
    assert world.holds(request)
    assert world.holds(first)
    assert world.holds(elsewhere)


def test_a_member_that_grew_onto_held_devices_is_not_parked_before_they_are_given_back() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.nodes["n2"].parts[A] = SimPart(frozenset({"d2"}), RUNNING)
    world.do(PartsReported("n2", (world.nodes["n2"].report(A),)))
    world.join("b", "g", n2=["d2"])
    request = world.acquire("b", "g")
    assert world.waits(request).reason == "d1 is held by a"
    world.yield_(held)
    world.run()
    assert world.holds(request)
    assert world.state("a", "g", "n1") is PARKED


def test_a_lease_that_was_granted_before_all_state_of_its_job_was_known_is_lost_and_asked_for_again() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n2": ["d2"]}})
    world.join("b", "g", n1=["d1"])
    world.nodes["n1"].parts[MemberKey("b", "g")].state = RUNNING
    world.do(PartsReported("n1", (world.nodes["n1"].report(MemberKey("b", "g")),)))
    held = world.acquire("a", "g")
    world.run()
    assert world.leases[held].devices == {"d1"}
    world.lose("n2")
    world.change_groups(GroupSpec("g", (("d1", "n1"), ("d2", "n2"))))
    for job, state in (("a", PARKED), ("b", RUNNING)):
        world.nodes["n2"].parts[MemberKey(job, "g")] = SimPart(frozenset({"d2"}), state)
    waiting = world.acquire("b", "g")
    world.connect("n2")
    assert world.lost == {held: "granted before all of the job's state was known"}
    world.run()
    assert world.holds(waiting)
    again = world.acquire("a", "g")
    world.yield_(waiting)
    world.run()
    assert world.leases[again].devices == {"d2"}
    assert world.state("a", "g", "n2") is RUNNING


def test_an_idle_part_of_a_job_that_does_not_hold_is_not_in_the_way() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.join("idle", "g", n1=["d1"])
    assert world.holds(world.acquire("a", "g"))
    assert world.state("idle", "g", "n1") is EMPTY


def test_a_yield_while_the_node_is_away_lets_the_others_wait_for_its_hello() -> None:
    world = World({"g": {"n1": ["d1"]}})
    world.join("a", "g", n1=["d1"])
    held = world.hold("a", "g")
    world.lose("n1")
    world.do(Yielded("lease-" + held, "a"))
    request = world.acquire("b", "g")
    assert not world.holds(request)
    world.connect("n1")
    world.run()
    assert world.holds(request)


def test_a_node_that_is_back_swaps_without_waiting_for_the_others() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.lose("n1")
    world.connect("n1")
    world.answer("n1")
    assert world.state("b", "g", "n1") is LOCKED
    assert world.state("a", "g", "n2") is LOCKED
    world.run()
    assert world.holds(request)


def test_a_node_that_is_back_and_has_nothing_left_to_do_is_sent_nothing() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1")
    world.connect("n1")
    assert not world.nodes["n1"].inbox
    world.run()
    assert world.holds(request)


def test_a_node_that_is_back_while_a_fault_is_being_undone_waits_for_the_way_back() -> None:
    world = two_nodes()
    world.break_("a", "g", "n1", Breakage(LOCKED, BUSY))
    world.acquire("b", "g")
    world.answer("n1")
    world.connect("n1")
    assert not world.nodes["n1"].inbox
    world.run()
    assert [world.state("a", "g", node) for node in world.nodes] == [RUNNING, RUNNING]


def test_processes_of_one_group_do_not_move_a_request_for_another() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    world.acquire("x", "h")
    request = world.acquire("a", "h")
    world.join("a", "g", n1=["d1"])
    assert world.waits(request).position == 1


def test_a_node_that_is_back_waits_while_another_undoes_all_on_its_own() -> None:
    world = two_nodes()
    world.acquire("b", "g")
    world.answer("n1")
    world.lose("n2")
    assert world.commands[-1].targets == ((A, RUNNING),)
    world.nodes["n2"].parts[A].state = LOCKED
    world.connect("n2")
    assert not world.nodes["n2"].inbox
    world.run()
    assert [world.state("a", "g", node) for node in world.nodes] == [RUNNING, RUNNING]


def test_a_node_that_is_back_and_is_through_is_sent_nothing() -> None:
    world = two_nodes()
    request = world.acquire("b", "g")
    world.answer("n1", "n2")
    world.answer("n1", "n2")
    world.answer("n1")
    world.connect("n1")
    assert not world.nodes["n1"].inbox
    world.run()
    assert world.holds(request)
