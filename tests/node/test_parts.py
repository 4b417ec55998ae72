from __future__ import annotations

from dataclasses import replace

import pytest
from timeslice_driver.backends.base import TargetState
from timeslice_driver.parts import GOALS, REVERSE, STEPS, Held, Member, Part, PartState, Step, Timings
from timeslice_driver.processes import ProcessId

RUNNING, LOCKED, CHECKPOINTED = TargetState.RUNNING, TargetState.LOCKED, TargetState.CHECKPOINTED
P1, P2 = ProcessId(1, 1), ProcessId(2, 2)
ONE = Part(Member("a", "g"), ("GPU-0",), family=frozenset({P1, P2}))


def part(*states: TargetState, spoilt: bool = False) -> Part:
    processes = [ProcessId(number, number) for number, _ in enumerate(states, 1)]
    pairs = zip(processes, states, strict=True)
    return replace(ONE, held={p: Held(p, state, {"GPU-0": 5}, spoilt=spoilt) for p, state in pairs})


@pytest.mark.parametrize(
    ("states", "expected", "resident"),
    [
        ((), PartState.EMPTY, False),
        ((RUNNING,), PartState.RUNNING, True),
        ((RUNNING, RUNNING), PartState.RUNNING, True),
        ((LOCKED, LOCKED), PartState.LOCKED, True),
        ((CHECKPOINTED, CHECKPOINTED), PartState.PARKED, False),
        ((CHECKPOINTED, RUNNING), PartState.LOCKED, True),  # a mixture is at neither end
        ((LOCKED, RUNNING), PartState.LOCKED, True),
        ((CHECKPOINTED, LOCKED), PartState.LOCKED, True),
        ((RUNNING, TargetState.FAILED), PartState.FAILED, True),
        ((TargetState.UNKNOWN, CHECKPOINTED), PartState.FAILED, True),
    ],
)
def test_the_state_of_a_part_follows_from_its_processes(
    states: tuple[TargetState, ...], expected: PartState, resident: bool
) -> None:
    assert part(*states).state is expected
    assert part(*states).resident is resident


def test_a_spoilt_process_fails_its_part_although_nothing_is_on_the_device() -> None:
    spoilt = part(CHECKPOINTED, spoilt=True)
    assert spoilt.state is PartState.FAILED
    assert not spoilt.resident
    assert spoilt.steps(PartState.RUNNING) == {}


@pytest.mark.parametrize("target", [PartState.RUNNING, PartState.LOCKED, PartState.PARKED])
@pytest.mark.parametrize("state", [RUNNING, LOCKED, CHECKPOINTED])
def test_the_steps_between_a_state_and_a_target_lead_there(state: TargetState, target: PartState) -> None:
    needs = {Step.LOCK: RUNNING, Step.CHECKPOINT: LOCKED, Step.RESTORE: CHECKPOINTED, Step.UNLOCK: LOCKED}
    for step in STEPS.get((state, target), ()):
        assert state is needs[step]
        state = GOALS[step]
    assert part(state).state is target


def test_each_step_is_taken_back_by_the_one_that_leads_to_where_it_began() -> None:
    began = {Step.LOCK: RUNNING, Step.CHECKPOINT: LOCKED, Step.RESTORE: CHECKPOINTED, Step.UNLOCK: LOCKED}
    for step in Step:
        assert GOALS[REVERSE[step]] is began[step]
        assert REVERSE[REVERSE[step]] is step


def test_a_command_to_a_mixture_moves_only_those_that_are_not_there() -> None:
    assert part(CHECKPOINTED, RUNNING).steps(PartState.PARKED) == {P2: (Step.LOCK, Step.CHECKPOINT)}
    assert part(CHECKPOINTED, RUNNING).steps(PartState.RUNNING) == {P1: (Step.RESTORE, Step.UNLOCK)}


def test_processes_that_are_gone_or_bare_are_let_go() -> None:
    left = part(CHECKPOINTED, CHECKPOINTED).with_states({P1: TargetState.GONE})
    assert set(left.held) == {P2}
    assert left.family == {P2}
    bare = part(RUNNING, RUNNING).with_states({P1: TargetState.NOTHING})
    assert set(bare.held) == {P2}
    assert bare.family == {P1, P2}


def test_sizes_that_are_not_known_count_as_none() -> None:
    held = Held(P1, RUNNING, {"GPU-0": 7, "GPU-1": -1})
    assert held.size == 7
    assert held.target.size == 7


def test_a_process_whose_call_was_given_up_is_unsure_until_a_later_one_has_brought_it_where_it_should() -> None:
    doubted = part(RUNNING, RUNNING).doubt({P1})
    assert [doubted.held[p].unsure for p in (P1, P2)] == [True, False]
    assert doubted.doubt({P2}).unsure
    assert doubted.doubt((), arrived={P2}).unsure
    assert not doubted.doubt((), arrived={P1, P2}).unsure
    assert not doubted.with_states({P1: TargetState.GONE}).unsure


def test_timings_add_up_step_by_step() -> None:
    timings = Timings().plus(Step.LOCK, 1.0).plus(Step.LOCK, 0.5).plus(Step.RESTORE, 2.0)
    assert timings == Timings(lock_s=1.5, restore_s=2.0)


def test_a_member_reads_as_job_and_group() -> None:
    assert str(ONE.member) == "job a in group g"
