"""The rules of movement, as data: where a part may go, what a hand-off sends next, how a request lives and ends.

Code reads these tables and has no second opinion; docs/state-machine.md is drawn from them by hack/state-diagram.
"""

from __future__ import annotations

from enum import Enum

from timeslice_orchestrator.core.model import PartState

EMPTY, RUNNING, LOCKED, PARKED, FAILED = PartState

# What a node can do to a part, one step at a time. The names are CUDA's.
PART_MOVES: dict[tuple[PartState, PartState], str] = {
    (EMPTY, RUNNING): "first use",
    (RUNNING, LOCKED): "lock",
    (LOCKED, RUNNING): "unlock",
    (LOCKED, PARKED): "checkpoint",
    (PARKED, LOCKED): "restore",
    (RUNNING, FAILED): "fault",
    (LOCKED, FAILED): "fault",
    (PARKED, FAILED): "fault",
}

# State that its job cannot use.
AWAY = frozenset({LOCKED, PARKED})

# State that is on the devices for certain; FAILED may be, its node tells.
RESIDENT = frozenset({RUNNING, LOCKED})


class Role(Enum):
    """What a hand-off wants of a member: to leave its devices, or to come onto them."""

    __hash__ = object.__hash__

    LEAVING = "leaving"
    COMING = "coming"


class Phase(Enum):
    """What a hand-off is doing; each phase is one command per node, sent to all nodes at once."""

    __hash__ = object.__hash__

    LOCK = "lock all that leave"
    SWAP = "park what leaves, restore what comes, node by node"
    UNLOCK = "unlock all that come"
    AT_ONCE = "all of it, on the only node"
    SWAP_BACK = "park what had come, restore what had left"
    UNLOCK_BACK = "unlock what had left"
    BACK_AT_ONCE = "all of it back, on the only node"


# The next phase is the first whose table has a target for some part; none left means that the end is reached.
FORWARD = (Phase.LOCK, Phase.SWAP, Phase.UNLOCK)
BACKWARD = (Phase.SWAP_BACK, Phase.UNLOCK_BACK)

# (role, state now) -> target
FORWARD_TARGETS: dict[Phase, dict[tuple[Role, PartState], PartState]] = {
    Phase.LOCK: {(Role.LEAVING, RUNNING): LOCKED},
    Phase.SWAP: {(Role.LEAVING, LOCKED): PARKED, (Role.COMING, PARKED): LOCKED},
    Phase.UNLOCK: {(Role.COMING, LOCKED): RUNNING},
    Phase.AT_ONCE: {
        (Role.LEAVING, RUNNING): PARKED,
        (Role.LEAVING, LOCKED): PARKED,
        (Role.COMING, PARKED): RUNNING,
        (Role.COMING, LOCKED): RUNNING,
    },
}

# (role, state before the hand-off, state now) -> target. What was parked before stays parked, nothing else does.
BACKWARD_TARGETS: dict[Phase, dict[tuple[Role, PartState, PartState], PartState]] = {
    Phase.SWAP_BACK: {
        (Role.COMING, PARKED, LOCKED): PARKED,
        (Role.COMING, PARKED, RUNNING): PARKED,
        (Role.LEAVING, RUNNING, PARKED): LOCKED,
        (Role.LEAVING, LOCKED, PARKED): LOCKED,
    },
    Phase.UNLOCK_BACK: {(Role.LEAVING, RUNNING, LOCKED): RUNNING},
    Phase.BACK_AT_ONCE: {
        (Role.COMING, PARKED, LOCKED): PARKED,
        (Role.COMING, PARKED, RUNNING): PARKED,
        (Role.LEAVING, RUNNING, PARKED): RUNNING,
        (Role.LEAVING, RUNNING, LOCKED): RUNNING,
        (Role.LEAVING, LOCKED, PARKED): LOCKED,
    },
}

# States that fulfil a target on the way forward: those further along do, and a part with nothing on the devices always
# does. FAILED off the devices has left them, whatever else it lost.
REACHED: dict[tuple[Role, PartState], frozenset[PartState]] = {
    (Role.LEAVING, LOCKED): frozenset({LOCKED, PARKED, EMPTY}),
    (Role.LEAVING, PARKED): frozenset({PARKED, EMPTY}),
    (Role.COMING, LOCKED): frozenset({LOCKED, RUNNING, EMPTY}),
    (Role.COMING, RUNNING): frozenset({RUNNING, EMPTY}),
}


class Stage(Enum):
    """Where a request is in its life."""

    __hash__ = object.__hash__

    WAITING = "waiting"  # in the queue, its client listens
    DETACHED = "detached"  # in the queue, its client is away
    HELD = "held"  # it has its lease
    SUSPECT = "suspect"  # it has its lease, which was not renewed in time
    ENDED = "ended"


STAGE_MOVES: dict[tuple[Stage, Stage], str] = {
    (Stage.WAITING, Stage.DETACHED): "client gone",
    (Stage.DETACHED, Stage.WAITING): "client back",
    (Stage.WAITING, Stage.HELD): "granted",
    (Stage.HELD, Stage.SUSPECT): "not renewed in ttl",
    (Stage.SUSPECT, Stage.HELD): "renewed",
    (Stage.WAITING, Stage.ENDED): "withdrawn or refused",
    (Stage.DETACHED, Stage.ENDED): "not back in grace, withdrawn or refused",
    (Stage.HELD, Stage.ENDED): "yielded, released by force, found incomplete or processes ended",
    (Stage.SUSPECT, Stage.ENDED): "lost after grace, or as when held",
}


class End(Enum):
    """How a request ended."""

    YIELDED = "yielded"
    WITHDRAWN = "withdrawn"
    REFUSED = "refused"
    LEFT = "left by its client"
    PROCESSES_ENDED = "its processes ended"
    EXPIRED = "expired"
    FORCED = "released by force"
    INCOMPLETE = "granted before all of the job's state was known"


# After these the job had its devices taken from under a lease that it may still believe in.
TAKEN = frozenset({End.EXPIRED, End.FORCED, End.INCOMPLETE})
