"""A reset has the drivers asked; what they call sound is in no quarantine any more, and the rest stays there."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core_world import FAILED, PARKED, World
from timeslice_api.errors import GroupNotFound, JobNotFound, JobQuarantined, OperationFailed, Unavailable
from timeslice_orchestrator.core.events import CommandDone, PartsReported, ResetRequested, Resumed
from timeslice_orchestrator.core.model import Fault, MemberKey

A = MemberKey("a", "g")
STUCK = Fault("Stuck", "the driver gave no answer", "see the node's log")


def failed(*nodes: str) -> World:
    """Job a has failed on these of two nodes: its driver gave no answer."""
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"], n2=["d2"])
    world.join("b", "g", n1=["d1"])
    for node in nodes:
        part = world.nodes[node].parts[A]
        part.state, part.fault, part.mute = FAILED, STUCK, True
        world.do(PartsReported(node, (world.nodes[node].report(A),)))
    return world


def reset(world: World, job: str = "a", group: str = "") -> None:
    world.do(ResetRequested("reset-1", job, group))


def refused(world: World) -> bool:
    try:
        world.acquire("a", "g")
    except JobQuarantined:
        return True
    return False


@pytest.mark.parametrize("group", ["g", ""])
def test_a_quarantine_ends_when_the_drivers_of_all_nodes_call_the_state_sound(group: str) -> None:
    world = failed("n1", "n2")
    reset(world, group=group)
    assert [command.targets for command in world.commands] == [((A, None),)] * 2
    world.answer("n1")
    assert not world.resets
    assert refused(world)
    world.answer("n2")
    assert (world.resets["reset-1"].members, world.resets["reset-1"].error) == ((A,), None)
    assert not refused(world)
    assert not world.core._books.resets


def test_what_has_failed_for_good_stays_in_quarantine_and_the_reason_is_told() -> None:
    world = failed("n1", "n2")
    world.nodes["n1"].parts[A].mute = False
    reset(world)
    world.run()
    error = world.resets["reset-1"].error
    assert isinstance(error, OperationFailed)
    assert str(error).startswith("a stays in quarantine in g: the driver gave no answer")
    assert (error.reason, error.hint, error.group_id) == ("Stuck", "see the node's log", "g")
    assert refused(world)


def test_a_failure_that_nobody_explains_is_told_by_the_reason_of_the_quarantine() -> None:
    world = failed()
    part = world.nodes["n1"].parts[A]
    part.state = FAILED
    world.do(PartsReported("n1", (world.nodes["n1"].report(A),)))
    reset(world)
    world.run()
    assert "a stays in quarantine in g: failed on n1" in str(world.resets["reset-1"].error)


def test_a_reset_of_a_job_that_is_in_no_quarantine_is_done_at_once() -> None:
    world = failed()
    reset(world)
    assert (world.resets["reset-1"].members, world.resets["reset-1"].error) == ((), None)
    assert not world.commands


def test_a_job_that_ended_while_its_driver_was_asked_is_in_no_quarantine() -> None:
    world = failed("n1")
    reset(world)
    for node in ("n1", "n2"):
        del world.nodes[node].parts[A]
    world.run()
    assert (world.resets["reset-1"].members, world.resets["reset-1"].error) == ((A,), None)
    assert A not in world.core._books.members


def test_an_unknown_job_or_group_is_an_error() -> None:
    world = failed("n1")
    with pytest.raises(JobNotFound, match="no node has a job 'x'"):
        reset(world, job="x")
    with pytest.raises(GroupNotFound):
        reset(world, group="nowhere")
    world.do(PartsReported("n1", ended=(MemberKey("b", "g"),)))
    with pytest.raises(JobNotFound, match="no node has a job 'b' in group g"):
        reset(world, job="b", group="g")


def test_a_node_that_is_not_connected_cannot_be_asked() -> None:
    world = failed("n1")
    world.lose("n2")
    with pytest.raises(Unavailable, match=r"the state of a in g: n2 is not connected"):
        reset(world)
    assert not world.commands


def test_after_a_restart_a_job_of_which_no_node_has_told_cannot_be_asked_for() -> None:
    world = failed("n1")
    world.restart(connect=False)
    with pytest.raises(Unavailable, match="its node was not heard yet"):
        reset(world)


@pytest.mark.parametrize("again", [False, True])
def test_a_link_that_breaks_meanwhile_ends_the_reset_when_the_others_have_answered(again: bool) -> None:
    world = failed("n1", "n2")
    reset(world)
    if again:
        world.connect("n1")
    else:
        world.lose("n1")
    assert not world.resets
    world.answer("n2")
    assert str(world.resets["reset-1"].error).startswith("the link to n1 broke before it had answered")
    assert refused(world)
    assert not world.core._books.resets


def test_a_node_that_refuses_to_be_asked_is_told() -> None:
    world = failed("n1")
    reset(world)
    for node in ("n1", "n2"):
        [command] = world.nodes[node].inbox
        world.nodes[node].inbox.clear()
        stale = Fault("StaleEpoch", "another one leads")
        world.do(CommandDone(node, command.command_id, refused=stale))
    error = world.resets["reset-1"].error
    assert isinstance(error, OperationFailed)
    assert str(error).startswith("n2: another one leads") or str(error).startswith("n1: another one leads")
    assert error.reason == "StaleEpoch"


def test_an_answer_of_another_node_is_news_of_its_parts_and_no_more() -> None:
    world = failed("n1")
    reset(world)
    [command] = world.nodes["n1"].inbox
    found = replace(world.nodes["n2"].report(A), state=PARKED)
    world.do(CommandDone("n2", command.command_id, (found,)))
    assert world.core._books.resets
    world.answer("n1", "n2")
    assert world.resets["reset-1"].error is None


def test_a_part_that_came_while_the_driver_was_asked_is_not_taken_for_ended() -> None:
    world = World({"g": {"n1": ["d1"], "n2": ["d2"]}})
    world.join("a", "g", n1=["d1"])
    part = world.nodes["n1"].parts[A]
    part.state, part.mute = FAILED, True
    world.do(PartsReported("n1", (world.nodes["n1"].report(A),)))
    reset(world)
    world.join("a", "g", n2=["d2"])
    world.run()
    assert sorted(world.core._books.members[A].parts) == ["n1", "n2"]


def test_a_resume_ends_a_drain_and_no_quarantine() -> None:
    world = failed("n1")
    world.nodes["n1"].parts[A].state = PARKED  # in truth; nobody has told
    world.do(Resumed("g"))
    assert refused(world)
