"""One run: a world, the faults of a seed one after the other, and the check of its log."""

from __future__ import annotations

import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice, pairwise
from pathlib import Path

from timeslice_chaos import deck
from timeslice_chaos.arena import EMBEDDED, AnyWorld, Arena
from timeslice_chaos.checker import Violation, check
from timeslice_chaos.deck import AnyFault
from timeslice_chaos.log import Event, distinct, read
from timeslice_chaos.process import ChaosError
from timeslice_chaos.report import Report


def run(
    seed: int,
    *,
    seconds: float,
    faults: Iterable[AnyFault] | None = None,
    keep: bool = False,
    arena: Arena = EMBEDDED,
) -> Report:
    """Strikes for that long, then waits until all is well, ends everything in order, and checks.

    Args:
        faults: in place of those that the seed deals; one after the other.
        keep: leaves the logs there even when nothing was violated.
    """
    report = Report(seed)
    folder = Path(tempfile.mkdtemp(prefix="ts-chaos-"))
    began = time.monotonic()
    try:
        with arena.living(folder, seed) as world:
            chance = random.Random(seed)
            hands = _dealt(arena.faults(), seed, chance) if faults is None else ([fault] for fault in faults)
            _Trial(arena, world, report, chance).go_through(hands, until=began + seconds)
    except ChaosError as error:
        report.violations.append(Violation("everyone is served", time.monotonic(), str(error)))
    report.seconds = time.monotonic() - began
    _judge(read(folder / "logs"), report)
    if report.violations or keep:
        report.logs = str(folder)
    else:
        shutil.rmtree(folder)
    return report


def _dealt(faults: list[AnyFault], seed: int, chance: random.Random) -> Iterator[list[AnyFault]]:
    """Mostly one fault, sometimes up to three that strike at the same time."""
    dealt = deck.deal(faults, seed)
    while True:
        yield list(islice(dealt, chance.choices((1, 2, 3), (6, 3, 1))[0]))


class _Trial:
    """A world under fire."""

    def __init__(self, arena: Arena, world: AnyWorld, report: Report, chance: random.Random) -> None:
        self._arena, self._world, self._report, self._chance = arena, world, report, chance

    def go_through(self, hands: Iterable[list[AnyFault]], *, until: float) -> None:
        """Fault by fault until that time, then an end in order."""
        self._await_service(since=0.0)
        for together in hands:
            if time.monotonic() > until:
                break
            self._suffer(together)
        left = [Violation("nothing is left", time.monotonic(), text) for text in self._world.end()]
        self._report.violations += left

    def _suffer(self, together: list[AnyFault]) -> None:
        strikers = [self._arena.striker(self._world, random.Random(self._chance.random())) for _ in together]
        with ThreadPoolExecutor(len(together)) as pool:
            struck = list(pool.map(lambda striker, fault: striker.strike(fault), strikers, together))
        for fault, it_did in zip(together, struck, strict=True):
            (self._report.faults if it_did else self._report.missed)[fault.kind, fault.where] += 1
        self._world.mend()
        whole = time.monotonic()
        served_s = self._await_service(since=whole) - whole
        kinds = " + ".join(sorted({fault.kind for fault, it_did in zip(together, struck, strict=True) if it_did}))
        if kinds:
            self._report.recoveries.append((kinds, served_s))
        told = ", ".join(
            f"{fault.kind} {fault.where}{'' if it_did else ' (its moment did not come)'}"
            for fault, it_did in zip(together, struck, strict=True)
        )
        print(f"  {served_s:5.2f} s after {told}", file=sys.stderr)
        self._world.settle()

    def _await_service(self, *, since: float) -> float:
        """Jobs that end meanwhile, of what was done to them, are started again."""
        until = time.monotonic() + self._arena.served_s
        while time.monotonic() < until:
            at = self._world.served(since, within_s=2.0)
            if at is not None:
                return at
            self._world.mend()
        raise ChaosError(f"not everyone was served within {self._arena.served_s:g} s: {self._world.group()}")


def _judge(events: list[Event], report: Report) -> None:
    events = distinct(events)
    report.violations += check(events)
    jobs = {event.pid: event["job"] for event in events if event.what == "job"}
    grants = [jobs[event.pid] for event in events if event.role == "job" and event.what == "granted"]
    report.grants = len(grants)
    report.handoffs = sum(before != after for before, after in pairwise(grants))
