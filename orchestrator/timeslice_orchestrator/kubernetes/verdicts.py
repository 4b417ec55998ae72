"""Why one GPU cannot be given to a claim that waits: a table of rules, in the order in which they are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from timeslice_api.kinds.names import TAINT_DRAINING, TAINT_UNHEALTHY, capacity_key

from timeslice_orchestrator.kubernetes.lanes import Lane
from timeslice_orchestrator.kubernetes.occupancy import Occupancy, User
from timeslice_orchestrator.kubernetes.wording import gpus_of_nodes, quantity

_TAINTS = {TAINT_DRAINING: "being drained", TAINT_UNHEALTHY: "not healthy"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a claim asks of each GPU. `host_memory` in bytes; None: what the lane has as its default."""

    group_id: str
    job: str
    host_memory: int | None


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a GPU is not free for a claim.

    Attributes:
        text: with {gpus} for the GPUs of which the same is true, {are} and {have} for its verb.
        passing: it goes by itself in a moment.
    """

    text: str
    passing: bool = False

    def of(self, gpus: Sequence[tuple[str, str]]) -> str:
        """The sentence for these GPUs, as (node, gpu)."""
        several = len(gpus) > 1
        words = {
            "{gpus}": gpus_of_nodes(gpus),
            "{are}": "are" if several else "is",
            "{have}": "have" if several else "has",
        }
        text = self.text
        for place, word in words.items():
            text = text.replace(place, word)
        return text


def obstacle(lane: Lane, asked: Asked, occupancy: Occupancy) -> Obstacle | None:
    """The first that stands in the way of giving the lane's GPU to the claim; None when it is free for it."""
    users = occupancy.users(lane)
    for rule in _SLOT_RULES if lane.slots else _LANE_RULES:
        for text in rule(lane, asked, users, occupancy):
            return Obstacle(text, passing=rule is _job_not_offered)
    return None


def _tainted(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    for taint in lane.taints:
        yield f"{{gpus}} {{are}} {_TAINTS.get(taint, f'tainted: {taint}')}"


def _in_other_group(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    for user in users:
        if user.group_id != asked.group_id:
            yield f"{{gpus}} {{are}} in group {user.group_id or '(unknown)'}"


def _same_job(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    if any(occupancy.has_job(user, asked.job) for user in users):
        yield f"job {asked.job} already has {{gpus}} (a job never shares a GPU with itself)"


def _seats(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    if len(users) >= lane.seats:
        yield f"seats: {{gpus}} {{have}} {len(users)} of {lane.seats} jobs"


def _host_memory(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    wanted = lane.host_memory_default if asked.host_memory is None else asked.host_memory
    left = lane.host_memory - sum(user.use.host_memory for user in users)
    if wanted > left:
        figures = f"{quantity(left)} of {quantity(lane.host_memory)} left, {quantity(wanted)} asked"
        yield f"host memory: {{gpus}} {{have}} {figures}"


def _job_not_offered(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    if capacity_key(asked.job) not in lane.job_keys:
        yield f"{{gpus}} {{are}} not offered to job {asked.job} yet"


def _slot_taken(lane: Lane, asked: Asked, users: list[User], occupancy: Occupancy) -> Iterator[str]:
    if any(user.use.device == lane.device for user in users):
        yield "slots: all of {gpus} are taken"


_Rule = Callable[[Lane, Asked, list[User], Occupancy], Iterator[str]]
_LANE_RULES: tuple[_Rule, ...] = (_tainted, _in_other_group, _same_job, _seats, _host_memory, _job_not_offered)
_SLOT_RULES: tuple[_Rule, ...] = (_tainted, _slot_taken)
