"""The tables of movement: whole, without contradictions, and obeyed."""

from __future__ import annotations

import itertools

import pytest
from timeslice_orchestrator.core.books import IllegalMoveError, Request
from timeslice_orchestrator.core.model import PartState, RequestRecord
from timeslice_orchestrator.core.tables import (
    BACKWARD,
    BACKWARD_TARGETS,
    FORWARD,
    FORWARD_TARGETS,
    PART_MOVES,
    REACHED,
    STAGE_MOVES,
    Phase,
    Role,
    Stage,
)

EMPTY, RUNNING, LOCKED, PARKED, FAILED = PartState


def reachable(start: PartState, goal: PartState) -> bool:
    seen = {start}
    for _ in PartState:
        seen |= {to for at, to in PART_MOVES if at in seen and to not in (FAILED, EMPTY)}
    return goal in seen


@pytest.mark.parametrize(("at", "to"), [*itertools.product(Stage, Stage)])
def test_a_request_moves_only_as_the_table_says(at: Stage, to: Stage) -> None:
    request = Request(RequestRecord("r", "a", ("g",), 1), at, 0.0)
    if (at, to) in STAGE_MOVES:
        request.go(to)
        assert request.stage is to
    else:
        with pytest.raises(IllegalMoveError, match="request r"):
            request.go(to)
        assert request.stage is at


def test_nothing_comes_after_the_end_of_a_request() -> None:
    assert not [move for move in STAGE_MOVES if move[0] is Stage.ENDED]


def test_every_target_can_be_reached_from_the_state_that_it_is_for() -> None:
    for rows in FORWARD_TARGETS.values():
        assert all(reachable(at, target) and at is not target for (_, at), target in rows.items())
    for back in BACKWARD_TARGETS.values():
        assert all(reachable(at, target) and at is not target for (_, _, at), target in back.items())


def test_phases_over_several_nodes_move_a_part_one_step_at_a_time() -> None:
    for phase in FORWARD:
        assert all((at, target) in PART_MOVES for (_, at), target in FORWARD_TARGETS[phase].items())


def test_failed_and_empty_parts_are_never_sent_anywhere() -> None:
    for rows in FORWARD_TARGETS.values():
        assert not {FAILED, EMPTY} & {at for _, at in rows}
    for back in BACKWARD_TARGETS.values():
        assert not {FAILED, EMPTY} & {at for _, _, at in back}


def test_a_single_node_is_sent_where_the_phases_together_lead() -> None:
    for role, goal in ((Role.LEAVING, PARKED), (Role.COMING, RUNNING)):
        for (who, at), target in FORWARD_TARGETS[Phase.AT_ONCE].items():
            if who is role:
                assert target is goal
                assert _walk(role, at) is goal


def _walk(role: Role, state: PartState) -> PartState:
    for phase in FORWARD:
        state = FORWARD_TARGETS[phase].get((role, state), state)
    return state


@pytest.mark.parametrize(
    ("role", "before", "at"), [*itertools.product(Role, (RUNNING, LOCKED, PARKED), (RUNNING, LOCKED, PARKED))]
)
def test_the_way_back_ends_where_what_left_began_and_what_came_is_parked(
    role: Role, before: PartState, at: PartState
) -> None:
    state = at
    for phase in BACKWARD:
        state = BACKWARD_TARGETS[phase].get((role, before, state), state)
    alone = BACKWARD_TARGETS[Phase.BACK_AT_ONCE].get((role, before, at), at)
    assert state is alone
    if role is Role.COMING:
        assert state is (PARKED if before is PARKED else at)
    elif _could_be(before, at):
        assert state is before


def _could_be(before: PartState, at: PartState) -> bool:
    """What leaves only ever moves away from the devices."""
    order = [RUNNING, LOCKED, PARKED]
    return order.index(at) >= order.index(before)


def test_every_target_on_the_way_forward_says_what_fulfils_it() -> None:
    sent = {(role, target) for rows in FORWARD_TARGETS.values() for (role, _), target in rows.items()}
    assert sent == set(REACHED)
    assert all(target in states and FAILED not in states for (_, target), states in REACHED.items())


def test_one_node_and_several_move_the_same_parts() -> None:
    forward = set().union(*(FORWARD_TARGETS[phase] for phase in FORWARD))
    assert forward == set(FORWARD_TARGETS[Phase.AT_ONCE])
    back = set().union(*(BACKWARD_TARGETS[phase] for phase in BACKWARD))
    assert back == set(BACKWARD_TARGETS[Phase.BACK_AT_ONCE])
