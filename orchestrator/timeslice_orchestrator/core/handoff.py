"""One hand-off: what it tells the nodes next, read off the states of its parts, and what their answers mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

from timeslice_orchestrator.core.books import Books, Handoff, Part
from timeslice_orchestrator.core.model import Fault, MemberKey, NodeName, PartState
from timeslice_orchestrator.core.tables import (
    BACKWARD,
    BACKWARD_TARGETS,
    FORWARD,
    FORWARD_TARGETS,
    REACHED,
    Phase,
    Role,
)

Targets: TypeAlias = dict[NodeName, list[tuple[MemberKey, PartState]]]


def parts(books: Books, handoff: Handoff) -> Iterator[tuple[Part, Role, PartState]]:
    """The parts that still exist, with their roles and how they were before."""
    for (key, node), before in handoff.before.items():
        member = books.members.get(key)
        if member and node in member.parts:
            yield member.parts[node], handoff.roles[key], before


def plan(books: Books, handoff: Handoff) -> tuple[Phase, Targets] | None:
    """The next phase and its targets per node; None at the end of the way, forward or back.

    A single node needs no rounds: it locks all before it parks any, and parks before it restores, by itself.
    """
    at_once = Phase.BACK_AT_ONCE if handoff.backward else Phase.AT_ONCE
    rest = targets(books, handoff, at_once)
    if len(rest) <= 1:
        return (at_once, rest) if rest else None
    phases = BACKWARD if handoff.backward else FORWARD
    return next((phase, due) for phase in phases if (due := targets(books, handoff, phase)))


def catch_up(books: Books, handoff: Handoff, node: NodeName) -> Targets:
    """What the present phase wants of a node that is back, unless that one has to repeat an earlier phase first."""
    for phase in BACKWARD if handoff.backward else FORWARD:
        due = targets(books, handoff, phase)
        if node in due:
            return {node: due[node]} if phase is handoff.phase else {}
    return {}


def targets(books: Books, handoff: Handoff, phase: Phase) -> Targets:
    """What a phase still wants of which node."""
    found: Targets = {}
    for part, role, before in parts(books, handoff):
        if handoff.backward:
            target = BACKWARD_TARGETS[phase].get((role, before, part.state))
        else:
            target = FORWARD_TARGETS[phase].get((role, part.state))
        if target and (part.member.key, part.node.name) not in handoff.given_up:
            found.setdefault(part.node.name, []).append((part.member.key, target))
    return found


def missed(handoff: Handoff, part: Part, target: PartState) -> bool:
    """Whether an answered command has failed for a part."""
    if handoff.backward:
        return part.state not in (target, PartState.EMPTY)
    role = handoff.roles[part.member.key]
    if part.state is PartState.FAILED and role is Role.LEAVING:
        return part.resident  # off the devices it is out of the way, whatever else it lost
    return part.state not in REACHED[role, target]


def fault_of(part: Part, target: PartState) -> Fault:
    """Why a part has not reached its target."""
    where = f"{part.member.key.job_id} on {part.node.name}"
    if part.fault:
        told = part.fault
        return Fault(told.reason, f"{where}: {told.message}", told.hint, told.retryable)
    return Fault("NotReached", f"{where} is {part.state.value}, not {target.value}", retryable=True)
