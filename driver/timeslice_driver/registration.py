"""How processes become part of a job in a group, and leave it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from timeslice_api.errors import InvalidRequest, OperationFailed, OrchestratorInCharge, StoreFailed
from timeslice_api.names import checked_name

from timeslice_driver.commands import Commands
from timeslice_driver.discovery import ScrambledListError
from timeslice_driver.groups_in_force import GroupsInForce
from timeslice_driver.inventory import InventoryError
from timeslice_driver.journal import Journal, JournalWriteError
from timeslice_driver.parts import Member, Part, PartState
from timeslice_driver.processes import ProcessId, ProcFs
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table


class Registration:
    """Puts registered processes into the table and the journal.

    Args:
        orchestrated: an orchestrator decides what is on the devices.
        on_end: told of each part that was taken out.
    """

    def __init__(
        self,
        table: Table,
        groups: GroupsInForce,
        *,
        procfs: ProcFs,
        survey: Survey,
        journal: Journal,
        commands: Commands,
        orchestrated: bool,
        on_end: Callable[[Member], None],
    ) -> None:
        self._table = table
        self._groups = groups
        self._procfs = procfs
        self._survey = survey
        self._journal = journal
        self._commands = commands
        self._orchestrated = orchestrated
        self._on_end = on_end

    async def register(self, job_id: str, group_id: str, pid: int, *, device_ids: Sequence[str] = ()) -> Part:
        """Makes a process and its descendants part of a job in a group. Safe to repeat.

        Raises:
            InvalidRequest: a name is none, there is no such process, it is registered for another job, or a device is
                not in the group.
            GroupNotFound: the node has no such group.
            Unavailable: the orchestrator has not told the node its groups yet.
            StoreFailed: the registration could not be written to disk, and was taken back.
        """
        member = Member(checked_name(job_id, "job_id"), checked_name(group_id, "group_id"))
        groups = await self._groups.known()
        covered = groups.covered(group_id, device_ids)
        root = await self._root(pid, member)
        before = self._table.get(member)
        part = before or Part(member, ())
        both = {*covered, *part.device_ids}
        in_order = [device_id for device_id in groups.covered(group_id) if device_id in both]
        devices = tuple(dict.fromkeys([*in_order, *part.device_ids]))  # also those that the group has lost meanwhile
        registered = replace(part, device_ids=devices, roots=part.roots | {root}, family=part.family | {root})
        self._table.put(registered)
        try:
            await self._journal.flush()
        except JournalWriteError as error:
            self._take_back(registered, root, before)
            raise StoreFailed(error.fault.message, hint=error.fault.hint, job_id=job_id, group_id=group_id) from error
        await self._look(member)
        return self._table.get(member) or replace(part, device_ids=devices)

    async def unregister(self, job_id: str, group_id: str, pid: int) -> None:
        """Takes a registered process and its descendants out again. Safe to repeat.

        Raises:
            OrchestratorInCharge: it is parked or locked, and only the orchestrator may put it back.
            OperationFailed: it is parked and could not be put back.
        """
        member = Member(job_id, group_id)
        part = self._table.get(member)
        root = next((root for root in part.roots if root.pid == pid), None) if part else None
        if part is None or root is None:
            return
        if part.state not in {PartState.EMPTY, PartState.RUNNING}:
            await self._put_back(member)
        await self._take_out(member, root)

    async def _root(self, pid: int, member: Member) -> ProcessId:
        root = await asyncio.to_thread(self._procfs.identity, pid) if pid else None
        if root is None:
            raise InvalidRequest(
                f"pid {pid} is no process that this node can see",
                hint="give the number that the node's pid namespace has for it, and of the process, not of a thread",
            )
        for other in self._table.parts():
            if root in other.roots and other.member.job_id != member.job_id:
                raise InvalidRequest(f"process {pid} is registered for {other.member} already", job_id=member.job_id)
        return root

    async def _look(self, member: Member) -> None:
        try:
            await self._survey.look([member], thorough=True)
        except (
            InventoryError,
            ScrambledListError,
        ):  # it is registered all the same; the watch and every command look again
            return

    def _take_back(self, registered: Part, root: ProcessId, before: Part | None) -> None:
        """Makes the table as it was; where others have come meanwhile, takes only this registration out."""
        now = self._table.get(registered.member)
        if now is registered and before:
            self._table.put(before)
        elif now is registered:
            self._table.drop(registered.member)
        elif now and not (before and root in before.roots):
            self._leave(replace(now, roots=now.roots - {root}), now.family - {root})

    async def _put_back(self, member: Member) -> None:
        if self._orchestrated:
            raise OrchestratorInCharge(
                f"{member} is not running, and only the orchestrator may put it back",
                hint="acquire the group, then unregister",
                job_id=member.job_id,
                group_id=member.group_id,
            )
        for part in await self._commands.bring({member: PartState.RUNNING}):
            if part.fault:
                fault = part.fault
                raise OperationFailed(
                    fault.message, reason=fault.reason, hint=fault.hint, job_id=member.job_id, group_id=member.group_id
                )

    async def _take_out(self, member: Member, root: ProcessId) -> None:
        while part := self._table.get(member):
            rest = replace(part, roots=part.roots - {root})
            family = await asyncio.to_thread(self._procfs.family, rest.roots)
            if self._table.get(member) is part:  # else somebody was registered meanwhile
                self._leave(rest, family)
                break
        self._journal.flush_soon()

    def _leave(self, part: Part, family: frozenset[ProcessId]) -> None:
        """Puts a part from which a root was taken, with what is left of its family."""
        if part.roots or part.pods:
            held = {process: held for process, held in part.held.items() if process in family}
            self._table.put(replace(part, family=family, held=held))
        else:
            self._table.drop(part.member)
            self._on_end(part.member)
