"""Carries one command out: brings parts into the states that it wants, or leaves them as they were.

The order is that of every safe hand-off. Look who is there; check that there is room; write the journal; lock all, and
look again for processes that came meanwhile, and for room, as threads of the job go on; checkpoint all; only then
restore; unlock last. What fails is undone: after a failed lock all that this command locked are unlocked, after a
failed checkpoint those done are restored first, after a failed restore those done are checkpointed again. The table
tells the truth at every moment, and is the answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from timeslice_driver.backends.base import Backend, Outcome, Target, TargetState
from timeslice_driver.discovery import Found, ScrambledListError, stray_fault
from timeslice_driver.faults import Fault
from timeslice_driver.groups_in_force import GroupsInForce
from timeslice_driver.inventory import Inventory, InventoryError, Nvml
from timeslice_driver.journal import Journal, JournalWriteError
from timeslice_driver.meter import Meter
from timeslice_driver.parts import GOALS, REVERSE, Member, Part, PartState, Step, Timings
from timeslice_driver.preflight import Preflight
from timeslice_driver.processes import ProcessId
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table

log = logging.getLogger(__name__)

_ROUNDS: Final = 3  # how often processes that came meanwhile are locked too
_AWAY: Final = frozenset({PartState.LOCKED, PartState.PARKED})


@dataclass(frozen=True)
class Workshop:
    """What a command works with."""

    table: Table
    backend: Backend
    survey: Survey
    inventory: Inventory
    nvml: Nvml  # for use in the inventory's thread
    preflight: Preflight
    journal: Journal
    groups: GroupsInForce
    meter: Meter = field(default_factory=Meter)


class AbandonedError(Exception):
    """The command cannot go on. `faults` are those of the members that are to blame."""

    def __init__(self, faults: Mapping[Member, Fault]) -> None:
        super().__init__("; ".join(fault.message for fault in faults.values()))
        self.faults = faults


class Convergence:
    """One command.

    Args:
        targets: the wanted state (RUNNING, LOCKED or PARKED) of each member, or None where the driver is only asked for
            the true state; members without a part here are passed over.
        lock_timeout_s: how long locks may take, all together (seconds).
    """

    def __init__(self, shop: Workshop, targets: Mapping[Member, PartState | None], *, lock_timeout_s: float) -> None:
        self._shop = shop
        self._table = shop.table
        here = {member: state for member, state in targets.items() if shop.table.get(member)}
        self._targets = {member: state for member, state in here.items() if state}
        self._asked = [member for member, state in here.items() if not state]
        self._lock_by = time.monotonic() + lock_timeout_s
        self._done: dict[Step, set[ProcessId]] = {step: set() for step in Step}

    async def run(self) -> None:
        """Does it. Never raises for a part's sake: faults are in the table, with the states that were reached."""
        before = {part.member: part.state for part in self._parts(self._targets)}
        for part in self._parts((*self._targets, *self._asked)):
            self._table.put(replace(part, fault=None, timings=Timings()))
        await self._ask()
        try:
            await self._recheck()
            await self._bring_away()
            await self._bring_back()
        except AbandonedError as error:
            self._blame(error.faults)
        self._tell(before)
        self._shop.journal.flush_soon()

    def _tell(self, before: Mapping[Member, PartState]) -> None:
        """In the log: what was reached, and what was not."""
        for part in self._parts(self._targets):
            told = part.member, part.state.value, part.timings
            if fault := part.fault:
                about = {**part.member.about, "fault": fault.reason}
                log.warning("%s is %s (%s): %s", *told, fault.message, extra=about)
            elif part.state is not before[part.member]:
                log.info("%s is %s (%s)", *told, extra=part.member.about)

    async def _ask(self) -> None:
        if self._asked:
            await self._shop.survey.ask(self._asked)
        for part in self._parts(self._asked):
            if part.state is PartState.FAILED:
                self._table.put(replace(part, fault=_failed(part)))

    async def _recheck(self) -> None:
        """A process that gave no answer may give one now, and a call that was given up may have come to its end."""
        parts = self._parts(self._targets)
        stuck = [part.member for part in parts if part.state is PartState.FAILED or part.unsure]
        if stuck:
            await self._shop.survey.ask(stuck)
        hopeless = {part.member: _failed(part) for part in self._parts(stuck) if part.state is PartState.FAILED}
        if hopeless:
            raise AbandonedError(hopeless)

    # -- off the devices ---------------------------------------------------------------------------------------------

    async def _bring_away(self) -> None:
        away = [member for member, state in self._targets.items() if state in _AWAY]
        if not away:
            return
        found = await self._look(away)
        if not self._planned(away, Step.LOCK) and not self._planned(away, Step.CHECKPOINT):
            return
        try:
            await self._lock_all(away, found)
            await self._checkpoint_all(away)
        except AbandonedError:
            await self._undo((Step.CHECKPOINT, Step.LOCK))
            raise

    async def _lock_all(self, away: Collection[Member], found: Mapping[Member, Found]) -> None:
        await self._check_before_park(away, found)
        await self._write_ahead()
        coming = self._planned(away, Step.LOCK)
        for _ in range(1 + _ROUNDS):
            if not coming:
                return
            await self._take(Step.LOCK, coming)
            await self._check_before_park(away, await self._look(away))
            if coming := self._planned(away, Step.LOCK):
                await self._write_ahead()
        raise AbandonedError({member: _changed(processes) for member, processes in coming.items()})

    async def _check_before_park(self, away: Collection[Member], found: Mapping[Member, Found]) -> None:
        parts = [part for part in self._parts(away) if part.resident]
        refused = await self._run(lambda: self._refusals(parts), parts)
        for part in parts:
            seen = found.get(part.member, Found())
            if fault := stray_fault(part.member, seen.strays, self._shop.groups.now.by_device):
                refused[part.member] = fault
        if refused:
            raise AbandonedError(refused)

    def _refusals(self, parts: list[Part]) -> dict[Member, Fault]:
        shop = self._shop
        return shop.preflight.before_park(parts, shop.survey.devices, mps_clients=shop.nvml.mps_clients())

    async def _checkpoint_all(self, away: Collection[Member]) -> None:
        moving = self._planned(away, Step.CHECKPOINT)
        if not moving:
            return
        await self._take(Step.CHECKPOINT, moving)
        await self._measure_room(moving)

    async def _measure_room(self, members: Iterable[Member]) -> None:
        device_ids = sorted({device_id for part in self._parts(members) for device_id in part.device_ids})
        try:
            free = {device_id: (await self._shop.inventory.memory(device_id)).free for device_id in device_ids}
        except InventoryError as error:
            log.warning("cannot measure the room that was made: %s", error)
            return
        for part in self._parts(members):
            self._table.put(replace(part, room={device_id: free[device_id] for device_id in part.device_ids}))

    # -- back onto them ----------------------------------------------------------------------------------------------

    async def _bring_back(self) -> None:
        members = list(self._targets)
        if coming := self._planned(members, Step.RESTORE):
            await self._check_before_restore(coming)
            try:
                await self._take(Step.RESTORE, coming)
            except AbandonedError:
                await self._undo((Step.RESTORE,))
                raise
        if waiting := self._planned(members, Step.UNLOCK):
            await self._take(Step.UNLOCK, waiting)

    async def _check_before_restore(self, members: Iterable[Member]) -> None:
        shop, parts = self._shop, self._parts(members)
        device_ids = sorted({device_id for part in parts for device_id in part.device_ids})

        def refusals() -> dict[Member, Fault]:
            memory = {device_id: shop.nvml.memory(device_id) for device_id in device_ids}
            return shop.preflight.before_restore(parts, memory, shop.nvml.processes)

        if refused := await self._run(refusals, parts):
            raise AbandonedError(refused)

    async def _run(self, check: Callable[[], dict[Member, Fault]], parts: Iterable[Part]) -> dict[Member, Fault]:
        """A check in the inventory's thread, which may ask NVML."""
        try:
            return await self._shop.inventory.run(check)
        except InventoryError as error:
            raise AbandonedError({part.member: _blind(error) for part in parts}) from error

    # -- steps -------------------------------------------------------------------------------------------------------

    def _parts(self, members: Iterable[Member]) -> list[Part]:
        return [part for member in members if (part := self._table.get(member))]

    def _planned(self, members: Iterable[Member], step: Step) -> dict[Member, list[ProcessId]]:
        """Processes whose next step is this one, by member; members with none are left out."""
        planned = {}
        for part in self._parts(members):
            steps = part.steps(self._targets[part.member])
            if processes := [process for process, todo in steps.items() if todo[0] is step]:
                planned[part.member] = processes
        return planned

    async def _take(self, step: Step, plan: Mapping[Member, Collection[ProcessId]]) -> None:
        """One step of many processes at once. Raises AbandonedError when some did not get there."""
        outcome = await self._act(step, plan)
        self._done[step] |= {process for process, state in outcome.states.items() if state is GOALS[step]}
        if outcome.faults:
            raise AbandonedError(_by_member(plan, outcome.faults))

    async def _act(self, step: Step, plan: Mapping[Member, Collection[ProcessId]]) -> Outcome:
        parts = {part.member: part for part in self._parts(plan)}
        targets = [parts[member].held[process].target for member, processes in plan.items() for process in processes]
        outcome = await self._call(step, targets)
        arrived = {process for process, state in outcome.states.items() if state is GOALS[step]}
        self._shop.meter.step(step, outcome.seconds, sum(each.size for each in targets if each.process in arrived))
        for part in self._parts(plan):
            states = {process: outcome.states[process] for process in plan[part.member] if process in outcome.states}
            timings = part.timings.plus(step, outcome.seconds)
            told = part.with_states(states).doubt(outcome.given_up, arrived=arrived)
            self._table.put(replace(told.spoil(outcome.spoilt), timings=timings))
        return outcome

    async def _call(self, step: Step, targets: list[Target]) -> Outcome:
        backend = self._shop.backend
        match step:
            case Step.LOCK:
                return await backend.lock(targets, timeout_s=max(0.001, self._lock_by - time.monotonic()))
            case Step.CHECKPOINT:
                return await backend.checkpoint(targets)
            case Step.RESTORE:
                return await backend.restore(targets)
            case Step.UNLOCK:
                return await backend.unlock(targets)

    async def _undo(self, steps: Iterable[Step]) -> None:
        """Takes steps of this command back, as far as that goes; what does not go back shows in the table."""
        for step in steps:
            plan = {}
            for part in self._parts(self._targets):
                there = [p for p, held in part.held.items() if p in self._done[step] and held.state is GOALS[step]]
                if there:
                    plan[part.member] = [process for process in there if not part.held[process].spoilt]
            outcome = await self._act(REVERSE[step], plan) if plan else Outcome()
            for member, fault in _by_member(plan, outcome.faults).items():
                log.error("%s could not be put back: %s", member, fault.message, extra=member.about)

    async def _look(self, members: Collection[Member]) -> Mapping[Member, Found]:
        try:
            idle = not any(part.held for part in self._parts(members))
            return await self._shop.survey.look(members, quick=idle)
        except (InventoryError, ScrambledListError) as error:
            raise AbandonedError(dict.fromkeys(members, _blind(error))) from error

    async def _write_ahead(self) -> None:
        try:
            await self._shop.journal.secure()
        except JournalWriteError as error:
            raise AbandonedError(dict.fromkeys(self._targets, error.fault)) from error

    def _blame(self, faults: Mapping[Member, Fault]) -> None:
        """Everybody's fault is told: their own, what became of them on the way back, or whose it was."""
        cause = next(iter(faults.items()))
        for part in self._parts(self._targets):
            fault = faults.get(part.member)
            if part.state is PartState.FAILED:
                fault = _failed(part, fault)
            elif fault is None and not _reached(part, self._targets[part.member]):
                self._table.put(replace(part, fault=_abandoned(*cause)))
                continue
            if fault:
                self._shop.meter.fault(fault.reason)
            self._table.put(replace(part, fault=fault))


def _reached(part: Part, target: PartState) -> bool:
    return part.state in {target, PartState.EMPTY}


def _by_member(plan: Mapping[Member, Collection[ProcessId]], faults: Mapping[ProcessId, Fault]) -> dict[Member, Fault]:
    """The first fault of each member; the number of further ones is told with it."""
    blamed = {}
    for member, processes in plan.items():
        own = [faults[process] for process in processes if process in faults]
        if own:
            more = f" (and {len(own) - 1} more of its processes)" if len(own) > 1 else ""
            blamed[member] = replace(own[0], message=own[0].message + more)
    return blamed


def _failed(part: Part, cause: Fault | None = None) -> Fault:
    pids = ", ".join(str(p.pid) for p, held in part.held.items() if held.spoilt or held.state is TargetState.FAILED)
    if not pids:
        return cause or Fault(
            "Stuck", f"the driver does not tell the state of {part.member}", "see the node's log", retryable=True
        )
    why = f": {cause.message}" if cause else ""
    hint = f"end process {pids} and start the job anew"
    return Fault("Unrecoverable", f"process {pids} of {part.member} can neither be parked nor put back{why}", hint)


def _abandoned(member: Member, fault: Fault) -> Fault:
    return Fault(
        "CommandAbandoned", f"left as it was, because of {member}: {fault.message}", fault.hint, fault.retryable
    )


def _changed(processes: Collection[ProcessId]) -> Fault:
    pids = ", ".join(str(process.pid) for process in processes)
    return Fault("ProcessSetChanged", f"new processes came while it was being locked, last {pids}", retryable=True)


def _blind(error: Exception) -> Fault:
    hint = error.hint if isinstance(error, InventoryError) else "install a driver newer than 535.98"
    return Fault("InventoryUnavailable", f"cannot see what is on the devices: {error}", hint, retryable=True)
