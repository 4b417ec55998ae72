"""Brings the table up to date with what is on the devices."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial

from timeslice_driver.backends.base import Backend, TargetState
from timeslice_driver.discovery import Candidate, Discovery, Found, Scope
from timeslice_driver.inventory import Device, Inventory, InventoryError
from timeslice_driver.parts import BARE, Held, Member, Part
from timeslice_driver.processes import ProcessId
from timeslice_driver.table import Table


class Survey:
    """Scans, probes, and writes the table.

    Args:
        inventory: in whose thread the scans run.
    """

    def __init__(self, table: Table, inventory: Inventory, discovery: Discovery, backend: Backend) -> None:
        self._table = table
        self._inventory = inventory
        self._discovery = discovery
        self._backend = backend
        self.devices: Sequence[Device] = ()  # of the node, as they were last seen

    async def look(
        self, members: Collection[Member], *, thorough: bool = False, quick: bool = False
    ) -> Mapping[Member, Found]:
        """Finds new processes of these parts, newer sizes, and who is gone.

        `thorough` finds parked ones too; `quick` is enough for parts that have nothing on the devices (see `scan`).

        Raises:
            InventoryError, ScrambledListError: what is on the devices cannot be found out; the table is as before.
        """
        found: dict[Member, Found] = {}
        todo = [part for part in self._table.parts() if part.member in members]
        while todo:
            scopes = [replace(self._scope(part), thorough=thorough) for part in todo]
            scan = partial(self._discovery.scan, scopes, self.devices, quick=quick)
            seen = await self._inventory.run(scan)
            states = await self._backend.probe(self._to_probe(seen))
            found |= seen
            todo = [changed for part in todo if (changed := self._take(part, seen[part.member], states))]
        return found

    def _take(self, part: Part, seen: Found, states: Mapping[ProcessId, TargetState]) -> Part | None:
        """Puts what was seen of a part into the table, unless the part was changed while the scan ran: what was seen
        may be older than that change, and would undo it. Returns such a part, to be looked at again."""
        now = self._table.get(part.member)
        if now is not part:
            return now
        self._table.put(_updated(part, seen, states))
        return None

    async def refresh(self) -> None:
        """Looks at the devices themselves. One that is gone, or cannot be asked about, stays and has a fault."""
        try:
            present = {device.device_id: device for device in await self._inventory.devices()}
        except InventoryError as error:
            why = f"{error} ({error.hint})" if error.hint else str(error)
            self.devices = tuple(replace(device, fault=why) for device in self.devices)
            return
        known = (present.pop(device.device_id, replace(device, fault="it is gone")) for device in self.devices)
        self.devices = (*known, *present.values())

    async def survivors(self, part: Part) -> frozenset[ProcessId]:
        """See `Discovery.survivors`. Raises InventoryError."""
        scope = self._scope(part)
        return await self._inventory.run(lambda: self._discovery.survivors(scope))

    async def ask(self, members: Collection[Member]) -> None:
        """Asks the backend about every process of these parts that the table knows to have accelerator state."""
        parts = [part for part in self._table.parts() if part.member in members]
        processes = sorted({process for part in parts for process in part.held})
        states = await self._backend.states(processes) if processes else {}
        for member in members:
            if part := self._table.get(member):
                self._table.put(part.with_states({p: state for p, state in states.items() if p in part.held}))

    def _scope(self, part: Part) -> Scope:
        sole = len(self._table.of_job(part.member.job_id)) == 1
        return Scope(part.member, part.device_ids, part.roots, part.family, pods=part.pods, sole=sole)

    def _to_probe(self, found: Mapping[Member, Found]) -> list[ProcessId]:
        """Those not known yet, those that gave no answer the last time, and those whose state may have changed."""
        wanted = set()
        for member, seen in found.items():
            part = self._table.get(member)
            held = part.held if part else {}
            for candidate in seen.candidates:
                entry = held.get(candidate.process)
                if entry is None or entry.state is TargetState.UNKNOWN:
                    wanted.add(candidate.process)
            wanted |= {process for process, entry in held.items() if entry.unsure}
        return sorted(wanted)


def _updated(part: Part, seen: Found, states: Mapping[ProcessId, TargetState]) -> Part:
    states = {p: state for p, state in states.items() if state is not TargetState.UNKNOWN or p not in part.held}
    known = part.with_states({p: state for p, state in states.items() if p in part.held})
    held = {process: entry for process, entry in known.held.items() if process in seen.family}
    for candidate in seen.candidates:
        process = candidate.process
        state = states.get(process, held[process].state if process in held else TargetState.NOTHING)
        if state in BARE:
            held.pop(process, None)
        elif state is not TargetState.CHECKPOINTED or process not in held:
            held[process] = _refreshed(held.get(process), candidate, state)
    return replace(part, family=seen.family, held=held)


def _refreshed(entry: Held | None, candidate: Candidate, state: TargetState) -> Held:
    spoilt = entry.spoilt if entry else False
    unsure = entry.unsure if entry else False
    return Held(candidate.process, state, candidate.sizes, candidate.job_file, spoilt, unsure)
