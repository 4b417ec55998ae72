"""Which groups a node offers its GPUs to. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from timeslice_api.kinds import TimesliceGroup

from timeslice_driver.dra.content import MOST_JOBS


@dataclass(frozen=True)
class Offer:
    """A group as a node's slices show it.

    Attributes:
        seats: jobs that may share one GPU.
        jobs: those that need a capacity of their own, the most needed first.
        host_memory: for snapshots, per GPU (bytes), where the group gives a figure; None: the node's share.
        draining: it takes no new claims, and stays for those it has.
        gpus: UUIDs of the only GPUs that it stays on; None: all.
    """

    group: str
    seats: int = 2
    jobs: tuple[str, ...] = ()
    host_memory: int | None = None
    draining: bool = False
    gpus: frozenset[str] | None = None

    def covers(self, uuid: str) -> bool:
        """Whether it has a lane on that GPU."""
        return self.gpus is None or uuid in self.gpus


class Held(Protocol):
    """A prepared claim, as far as offers depend on it."""

    @property
    def group(self) -> str:
        """Its group."""

    @property
    def job(self) -> str:
        """Its job."""

    @property
    def uuids(self) -> tuple[str, ...]:
        """Its GPUs."""


def offers(groups: Iterable[TimesliceGroup], labels: Mapping[str, str], held: Sequence[Held]) -> tuple[Offer, ...]:
    """The groups that select this node, and those that do not any more but have claims prepared on it, by name.

    A lane that vanishes gives its GPU free in the scheduler's books; so one that is in use stays, closed to new claims.
    """
    made = {group.name: _offer(group, held) for group in groups if group.spec.selects(labels)}
    for group in {claim.group for claim in held} - made.keys():
        made[group] = _leftover(group, [claim for claim in held if claim.group == group])
    return tuple(made[name] for name in sorted(made))


def _offer(group: TimesliceGroup, held: Sequence[Held]) -> Offer:
    here = sorted({claim.job for claim in held if claim.group == group.name})
    return Offer(
        group=group.name,
        seats=group.spec.seats,
        jobs=_ordered(group.jobs, here),
        host_memory=group.spec.host_memory_bytes,
        draining=group.deleted,
    )


def _ordered(jobs: Sequence[str], here: Sequence[str]) -> tuple[str, ...]:
    """All of them; where there is no room for all, those that have claims here come first."""
    every = dict.fromkeys((*jobs, *here))
    return tuple(every if len(every) <= MOST_JOBS else dict.fromkeys((*here, *jobs)))


def _leftover(group: str, held: Sequence[Held]) -> Offer:
    return Offer(
        group=group,
        seats=max(2, len(held)),
        jobs=tuple(sorted({claim.job for claim in held})),
        draining=True,
        gpus=frozenset(uuid for claim in held for uuid in claim.uuids),
    )
