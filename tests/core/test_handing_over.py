from __future__ import annotations

from core_world import LOCKED, ONE, PARKED, RUNNING, World
from timeslice_orchestrator.core.effects import HandedOver
from timeslice_orchestrator.core.events import CommandDone, PartsReported
from timeslice_orchestrator.core.model import MemberKey, Timings


def two_jobs() -> World:
    world = World(ONE)
    world.join("a", "g", n1=["d1"])
    world.join("b", "g", n1=["d1"])
    return world


def test_a_free_device_is_granted_at_once_without_a_command() -> None:
    world = two_jobs()
    assert world.holds(world.acquire("a", "g"))
    assert not world.commands


def test_a_waiting_job_gets_the_device_after_the_holders_state_was_parked() -> None:
    world = two_jobs()
    first = world.hold("a", "g")
    second = world.acquire("b", "g")
    assert not world.holds(second)
    assert world.yield_(first).waiting == 1
    assert not world.holds(second)
    world.run()
    assert world.holds(second)
    assert world.state("a", "g", "n1") is PARKED


def test_a_single_node_hand_off_is_one_command() -> None:
    world = two_jobs()
    world.yield_(world.hold("a", "g"))
    world.yield_(world.hold("b", "g"))
    before = len(world.commands)
    third = world.hold("a", "g")
    assert len(world.commands) == before + 1
    assert [target for _, target in world.commands[-1].targets] == [PARKED, RUNNING]
    assert world.grants[-1].restored
    assert world.holds(third)


def test_a_job_that_comes_back_first_finds_its_state_in_place() -> None:
    world = two_jobs()
    world.yield_(world.hold("a", "g"))
    again = world.acquire("a", "g")
    assert world.holds(again)
    assert not world.grants[-1].restored
    assert not world.commands


def test_several_nodes_lock_all_then_swap_then_unlock_all() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in ("a", "b"):
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("a", "g"))
    world.yield_(world.hold("b", "g"))
    sent = len(world.commands)
    third = world.acquire("a", "g")
    assert [(c.node, c.targets[0][1]) for c in world.commands[sent:]] == [("n1", LOCKED), ("n2", LOCKED)]
    world.answer("n1")
    assert len(world.commands) == sent + 2
    world.answer("n2")
    assert [[t for _, t in c.targets] for c in world.commands[sent + 2 :]] == [[PARKED, LOCKED], [PARKED, LOCKED]]
    world.answer("n2", "n1")
    assert [[t for _, t in c.targets] for c in world.commands[sent + 4 :]] == [[RUNNING], [RUNNING]]
    assert not world.holds(third)
    world.answer("n1", "n2")
    assert world.holds(third)


def test_a_node_restores_as_soon_as_it_has_parked_whatever_the_others_do() -> None:
    world = two_nodes()
    world.acquire("b", "g")
    world.answer("n1", "n2")
    world.nodes["n1"].execute()
    assert world.state("a", "g", "n1") is PARKED
    assert world.state("b", "g", "n1") is LOCKED
    assert world.state("a", "g", "n2") is LOCKED


def two_nodes() -> World:
    """Job a is resident on both nodes, job b is parked there."""
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    for job in ("a", "b"):
        world.join(job, "g", n1=["d1"], n2=["d2"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    return world


def test_a_member_is_parked_whole_also_where_only_one_of_its_devices_is_wanted() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.join("b", "g", n1=["d1"])
    world.yield_(world.hold("a", "g"))
    assert world.holds(world.hold("b", "g"))
    assert world.state("a", "g", "n1") is PARKED
    assert world.state("a", "g", "n2") is PARKED


def test_hand_offs_of_disjoint_devices_run_at_the_same_time() -> None:
    world = World({"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}})
    for group, device in (("g", "d1"), ("h", "d2")):
        for job in ("a", "b"):
            world.join(job, group, n1=[device])
        world.yield_(world.hold("a", group))
    world.acquire("b", "g")
    world.acquire("b", "h")
    assert len(world.nodes["n1"].inbox) == 2


def test_a_hand_off_tells_at_its_end_how_long_it_and_its_steps_took() -> None:
    world = World({"g": {"n1": ["d1"]}})
    for job in "ab":
        world.join(job, "g", n1=["d1"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    world.acquire("b", "g")
    world.until(4.0)
    world.nodes["n1"].execute()
    told = [effect for effect in world.do(world.nodes["n1"].outbox.popleft()) if isinstance(effect, HandedOver)]
    both_parts = Timings(1.0, 2.0, 4.0, 0.5)
    assert told == [HandedOver(("g",), 4.0, (("g", both_parts),))]


def test_a_hand_off_waits_for_another_that_moves_a_member_on_its_devices() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.join("b", "g", n1=["d1"])
    world.join("c", "g", n2=["d2"])
    world.yield_(world.hold("a", "g"))
    first, second = world.acquire("b", "g"), world.acquire("c", "g")
    assert world.waits(second).reason == "a hand-off to b is under way"  # another one than its own
    assert world.core.view("g", world.now).switching_to == "b"
    world.run()
    assert world.holds(first)
    assert world.holds(second)


def test_state_that_nobody_asked_for_is_parked_before_the_next_grant() -> None:
    world = two_jobs()
    world.nodes["n1"].parts[MemberKey("b", "g")].state = RUNNING
    world.do(PartsReported("n1", (world.nodes["n1"].report(MemberKey("b", "g")),)))
    request = world.acquire("a", "g")
    assert not world.holds(request)
    world.run()
    assert world.holds(request)
    assert world.state("b", "g", "n1") is PARKED


def test_a_job_that_never_used_its_grant_costs_one_command_and_no_snapshot() -> None:
    world = two_jobs()
    world.yield_(world.acquire("a", "g"))
    request = world.acquire("b", "g")
    world.run()
    assert world.holds(request)
    assert not world.nodes["n1"].log
    assert world.core.view("g", world.now).totals.bytes_parked == 0


def test_an_idle_report_of_a_holder_is_not_believed_since_it_may_use_its_devices_now() -> None:
    world = two_jobs()
    request = world.acquire("a", "g")
    idle = world.nodes["n1"].report(MemberKey("a", "g"))
    world.do(PartsReported("n1", (idle,)))
    world.use(request)
    world.yield_(request)
    world.do(PartsReported("n1", (idle,)))
    other = world.acquire("b", "g")
    assert not world.holds(other)
    world.run()
    assert world.holds(other)


def test_a_withdrawn_hand_off_is_finished_and_the_next_in_line_goes_on() -> None:
    world = two_jobs()
    world.join("c", "g", n1=["d1"])
    world.yield_(world.hold("b", "g"))
    world.yield_(world.hold("a", "g"))
    second, third = world.acquire("b", "g"), world.acquire("c", "g")
    world.withdraw(second, "b")
    assert not world.holds(third)
    world.answer("n1")
    assert world.state("b", "g", "n1") is RUNNING
    world.run()
    assert world.holds(third)
    assert world.state("b", "g", "n1") is PARKED


def test_all_requests_of_a_job_are_granted_when_its_hand_off_ends() -> None:
    world = two_jobs()
    world.yield_(world.hold("a", "g"))
    ranks = [world.acquire("b", "g") for _ in range(3)]
    world.run()
    assert all(map(world.holds, ranks))
    assert len({world.leases[rank].token for rank in ranks}) == 3


def test_a_job_without_processes_takes_all_devices_of_the_group() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n2=["d2"])
    world.yield_(world.hold("a", "g"))
    request = world.hold("new", "g")
    assert world.leases[request].devices == {"d1", "d2"}
    assert world.state("a", "g", "n2") is PARKED


def test_processes_that_join_while_their_job_holds_count_as_resident_from_then_on() -> None:
    world = World(ONE)
    request = world.acquire("a", "g")
    world.join("a", "g", n1=["d1"])
    world.use(request)
    world.join("b", "g", n1=["d1"])
    world.yield_(request)
    other = world.acquire("b", "g")
    assert not world.holds(other)
    world.run()
    assert world.holds(other)


def test_totals_count_bytes_and_the_slowest_node() -> None:
    world = two_nodes()
    before = world.core.view("g", world.now).totals
    world.acquire("b", "g")
    world.until(3.0)
    world.run()
    after = world.core.view("g", world.now).totals
    assert after.handoffs == before.handoffs + 1
    assert after.bytes_parked == before.bytes_parked + 2000
    assert after.bytes_restored == before.bytes_restored + 2000
    assert after.handoff_s - before.handoff_s == 3.0
    assert 0 < after.checkpoint_s - before.checkpoint_s < 6.0


def test_sums_of_bytes_end_at_what_numbers_of_64_bits_hold() -> None:
    world = two_nodes()
    totals = world.core._books.group("g").totals
    totals.bytes_parked = totals.bytes_restored = (1 << 63) - 2
    world.acquire("b", "g")
    world.run()
    after = world.core.view("g", world.now).totals
    assert after.bytes_parked == after.bytes_restored == (1 << 63) - 1


def test_answers_to_unknown_commands_are_believed_as_reports_only() -> None:
    world = two_jobs()
    key = MemberKey("b", "g")
    world.nodes["n1"].parts[key].state = PARKED
    world.do(CommandDone("n1", 999, (world.nodes["n1"].report(key),)))
    request = world.acquire("b", "g")
    assert not world.holds(request)
    world.run()
    assert world.holds(request)


def test_an_answer_from_the_wrong_node_settles_nothing() -> None:
    world = two_nodes()
    world.acquire("b", "g")
    command = world.commands[-1]
    assert command.node == "n2"
    world.do(CommandDone("n1", command.command_id, ()))
    assert world.core.view("g", world.now).switching_to == "b"
    world.run()
    assert world.state("b", "g", "n2") is RUNNING


def test_a_node_may_report_a_move_before_it_answers_the_command_that_made_it() -> None:
    world = two_nodes()
    world.acquire("b", "g")
    world.answer("n1", "n2")
    before = world.core.view("g", world.now).totals.bytes_parked
    for name, node in world.nodes.items():
        node.execute()
        world.do(PartsReported(name, tuple(map(node.report, node.parts))))
    world.run()
    assert world.core.view("g", world.now).totals.bytes_parked == before + 2000
    assert world.grants[-1].restored
