"""Where a run takes place: what lives there, what can strike it, and how long it may take to be well again."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from timeslice_chaos import deck
from timeslice_chaos.log import Log
from timeslice_chaos.strike import Striker
from timeslice_chaos.world import living


class AnyWorld(Protocol):
    """Orchestrators, nodes and jobs that run."""

    log: Log

    def mend(self) -> object:
        """Undoes what a fault has left, and starts what has ended."""

    def served(self, since: float, within_s: float) -> float | None:
        """When every process of a job had been granted after `since`; None when some were not in time."""

    def settle(self) -> None:
        """Returns when the next fault may strike."""

    def group(self) -> dict[str, Any]:
        """The group that they share, as people see it."""

    def end(self) -> list[str]:
        """Ends everything in order. What is left behind, in words."""


class AnyStriker(Protocol):
    """Makes a fault happen."""

    def strike(self, fault: Any) -> bool:
        """Whether it did."""


Living: TypeAlias = Callable[[Path, int], AbstractContextManager[AnyWorld]]


@dataclass(frozen=True)
class Arena:
    """One of them.

    Attributes:
        living: the world below a folder, for a seed, for as long as the block lasts.
        faults: all there are.
        served_s: a job that was not granted so long after the last fault waits for ever.
        fixed: seeds of a run that names none and no time, and for how many seconds each.
        long_s: for each seed of a long run.
    """

    living: Living
    faults: Callable[[], list[Any]]
    striker: Callable[[Any, random.Random], AnyStriker]
    served_s: float
    fixed: tuple[Sequence[int], float]
    long_s: float


EMBEDDED = Arena(
    living=lambda folder, seed: living(folder, standby=seed % 2 == 0),
    faults=deck.faults,
    striker=Striker,
    served_s=60.0,
    fixed=((1, 2), 30.0),
    long_s=180.0,
)
