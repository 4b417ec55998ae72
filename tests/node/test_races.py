"""What is changed while somebody waits for a scan is not undone by what the scan saw before the change."""

import asyncio
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from timeslice_api.errors import StoreFailed
from timeslice_driver.backends.base import TargetState
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.discovery import Candidate, Found, Scope
from timeslice_driver.faults import Fault
from timeslice_driver.journal import JournalWriteError
from timeslice_driver.parts import Held, Member, Part, PartState
from timeslice_driver.processes import ProcessId, ProcFs
from timeslice_driver.registration import Registration
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table
from timeslice_driver.watch import Watch

JOB = Member("a", "g")
OLD, NEW = ProcessId(2**22 + 1, 1), ProcessId(2**22 + 2, 1)  # numbers that no process has
GPU = "GPU-0"


class Meanwhile:
    """Does something in the middle of the first scan, and sees the machine as it was when each scan began."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self.pids = frozenset[int]()
        self.scans = 0
        self._happens = happens

    async def run(self, scan: Callable[[], Any]) -> Any:
        seen = scan()
        self.scans += 1
        await asyncio.sleep(0)
        if self.scans == 1:
            self._happens()
        return seen

    def scan(self, scopes: list[Scope], devices: object, *, quick: bool) -> dict[Member, Found]:
        return {scope.member: self._found(scope) for scope in scopes}

    def survivors(self, scope: Scope) -> frozenset[ProcessId]:
        return scope.roots - {OLD}

    async def probe(self, processes: list[ProcessId]) -> Mapping[ProcessId, TargetState]:
        return dict.fromkeys(processes, TargetState.RUNNING)

    def _found(self, scope: Scope) -> Found:
        family = scope.roots | scope.family
        return Found(family, tuple(Candidate(process, {GPU: 1}) for process in sorted(family)))


def survey(table: Table, happens: Callable[[], None]) -> tuple[Survey, Meanwhile]:
    machine: Any = Meanwhile(happens)
    return Survey(table, machine, machine, machine), machine


def holding(process: ProcessId, state: TargetState) -> Held:
    return Held(process, state, {GPU: 1})


async def test_a_process_that_was_parked_during_a_look_stays_parked_in_the_table() -> None:
    table = Table()
    old = {OLD: holding(OLD, TargetState.RUNNING)}
    table.put(Part(JOB, (GPU,), roots=frozenset({OLD}), family=frozenset({OLD}), held=old))

    def another_is_found_and_both_are_parked() -> None:
        both = frozenset({OLD, NEW})
        held = {process: holding(process, TargetState.CHECKPOINTED) for process in both}
        table.put(replace(table.get(JOB) or Part(JOB, ()), roots=both, family=both, held=held))

    looking, machine = survey(table, another_is_found_and_both_are_parked)
    found = await looking.look([JOB])
    part = table.get(JOB)
    assert part is not None
    assert part.state is PartState.PARKED
    assert part.held.keys() == {OLD, NEW}
    assert found[JOB].family == {OLD, NEW}
    assert machine.scans == 2


async def test_a_part_that_left_during_a_look_does_not_come_back() -> None:
    table = Table()
    table.put(Part(JOB, (GPU,), roots=frozenset({OLD}), family=frozenset({OLD})))
    looking, _ = survey(table, lambda: table.drop(JOB))
    await looking.look([JOB])
    assert table.get(JOB) is None


async def test_a_process_registered_while_the_last_one_is_found_dead_keeps_its_part() -> None:
    table = Table()
    table.put(Part(JOB, (GPU,), roots=frozenset({OLD}), family=frozenset({OLD})))
    mine = ProcFs().identity(os.getpid())
    assert mine is not None

    def started_anew() -> None:
        part = table.get(JOB) or Part(JOB, ())
        table.put(replace(part, roots=part.roots | {mine}, family=part.family | {mine}))

    ended: list[Member] = []
    looking, machine = survey(table, started_anew)
    watch = Watch(
        table,
        looking,
        ProcFs(),
        busy=lambda _: False,
        interval_s=60,
        claims=ClaimParts(),
        on_end=ended.append,
        on_process_end=lambda _: None,
    )
    watch.start()
    async with asyncio.timeout(5):
        while not machine.scans or (table.get(JOB) or Part(JOB, ())).family != {mine}:
            await asyncio.sleep(0.01)
    await watch.stop()
    assert ended == []


@pytest.mark.parametrize("others", [frozenset({NEW}), frozenset()])
async def test_what_is_unregistered_takes_nobody_along_who_came_meanwhile(others: frozenset[ProcessId]) -> None:
    table = Table()
    table.put(Part(JOB, (GPU,), roots=frozenset({OLD}), family=frozenset({OLD})))

    class Slow(ProcFs):
        """In the first look at the family others are registered."""

        def family(self, roots: Any) -> frozenset[ProcessId]:
            part = table.get(JOB)
            if part and others and part.roots == {OLD}:
                table.put(replace(part, roots=part.roots | others, family=part.family | others))
            return frozenset(roots)

    ended: list[Member] = []
    unused: Any = None
    quiet: Any = Quiet()
    registration = Registration(
        table,
        unused,
        procfs=Slow(Path("/proc")),
        survey=unused,
        journal=quiet,
        commands=unused,
        orchestrated=False,
        on_end=ended.append,
    )
    await registration.unregister("a", "g", OLD.pid)
    part = table.get(JOB)
    assert (part.roots if part else frozenset()) == others
    assert ended == ([] if others else [JOB])


@pytest.mark.parametrize("before", [True, False])
async def test_a_registration_that_cannot_be_written_leaves_the_part_as_it_was(before: bool) -> None:
    table = Table()
    mine = ProcFs().identity(os.getpid())
    assert mine is not None
    known = Part(JOB, (GPU,), roots=frozenset({mine}), family=frozenset({mine}))
    if before:
        table.put(known)
    groups: Any = BothDevices()
    full: Any = Full()
    unused: Any = None
    ended: list[Member] = []
    registration = Registration(
        table,
        groups,
        procfs=ProcFs(),
        survey=unused,
        journal=full,
        commands=unused,
        orchestrated=False,
        on_end=ended.append,
    )
    with pytest.raises(StoreFailed):
        await registration.register("a", "g", os.getpid())
    assert table.get(JOB) == (known if before else None)
    assert ended == []


class BothDevices:
    """Groups of which each has two devices."""

    async def known(self) -> "BothDevices":
        return self

    def covered(self, group_id: str, device_ids: object = ()) -> tuple[str, ...]:
        return (GPU, "GPU-1")


class Full:
    """A journal on a full disk."""

    async def flush(self) -> None:
        raise JournalWriteError(Fault("JournalFull", "the disk is full", retryable=True))


class Quiet:
    """A journal that writes nothing."""

    def flush_soon(self) -> None:
        """Later, never."""
