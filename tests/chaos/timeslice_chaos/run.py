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
from timeslice_chaos.checker import Violation, check
from timeslice_chaos.deck import Fault
from timeslice_chaos.log import Event, read
from timeslice_chaos.process import ChaosError
from timeslice_chaos.report import Report
from timeslice_chaos.strike import Striker
from timeslice_chaos.world import World, living

SERVED_S = 60.0  # a job that was not granted so long after the last fault waits for ever


def run(seed: int, *, seconds: float, faults: Iterable[Fault] | None = None, keep: bool = False) -> Report:
    """Strikes for that long, then waits until all is well, ends everything in order, and checks.

    Args:
        faults: in place of those that the seed deals; one after the other.
        keep: leaves the logs there even when nothing was violated.
    """
    report = Report(seed)
    folder = Path(tempfile.mkdtemp(prefix="ts-chaos-"))
    began = time.monotonic()
    try:
        with living(folder, standby=seed % 2 == 0) as world:
            chance = random.Random(seed)
            hands = _dealt(seed, chance) if faults is None else ([fault] for fault in faults)
            _live(world, report, hands, until=began + seconds, chance=chance)
    except ChaosError as error:
        report.violations.append(Violation("everyone is served", time.monotonic(), str(error)))
    report.seconds = time.monotonic() - began
    _judge(read(folder / "logs"), report)
    if report.violations or keep:
        report.logs = str(folder)
    else:
        shutil.rmtree(folder)
    return report


def _live(world: World, report: Report, hands: Iterable[list[Fault]], *, until: float, chance: random.Random) -> None:
    _await_service(world, since=0.0)
    for together in hands:
        if time.monotonic() > until:
            break
        _suffer(world, together, report, chance)
    report.violations += [Violation("nothing is left", time.monotonic(), text) for text in world.end()]


def _dealt(seed: int, chance: random.Random) -> Iterator[list[Fault]]:
    """Mostly one fault, sometimes up to three that strike at the same time."""
    dealt = deck.deal(seed)
    while True:
        yield list(islice(dealt, chance.choices((1, 2, 3), (6, 3, 1))[0]))


def _suffer(world: World, together: list[Fault], report: Report, chance: random.Random) -> None:
    strikers = [Striker(world, random.Random(chance.random())) for _ in together]
    with ThreadPoolExecutor(len(together)) as pool:
        struck = list(pool.map(lambda striker, fault: striker.strike(fault), strikers, together))
    for fault, it_did in zip(together, struck, strict=True):
        (report.faults if it_did else report.missed)[fault.kind, fault.where] += 1
    world.mend()
    whole = time.monotonic()
    served_s = _await_service(world, since=whole) - whole
    kinds = " + ".join(sorted({fault.kind for fault, it_did in zip(together, struck, strict=True) if it_did}))
    if kinds:
        report.recoveries.append((kinds, served_s))
    told = ", ".join(
        f"{fault.kind} {fault.where}{'' if it_did else ' (its moment did not come)'}"
        for fault, it_did in zip(together, struck, strict=True)
    )
    print(f"  {served_s:5.2f} s after {told}", file=sys.stderr)


def _await_service(world: World, *, since: float) -> float:
    """Jobs that end meanwhile, of what was done to them, are started again."""
    until = time.monotonic() + SERVED_S
    while time.monotonic() < until:
        at = world.served(since, within_s=2.0)
        if at is not None:
            return at
        world.mend()
    raise ChaosError(f"not everyone was served within {SERVED_S:g} s: {world.group()}")


def _judge(events: list[Event], report: Report) -> None:
    report.violations += check(events)
    jobs = {event.pid: event["job"] for event in events if event.what == "job"}
    grants = [jobs[event.pid] for event in events if event.role == "job" and event.what == "granted"]
    report.grants = len(grants)
    report.handoffs = sum(before != after for before, after in pairwise(grants))
