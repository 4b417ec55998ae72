"""Notices what happens to parts without a command: processes that end, and accelerator state that appears.

Ends are events (pidfd_open(2)). Nobody is told when a process makes a CUDA context, so that is looked for now and then;
a command looks for itself, and does not rely on it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import replace

from timeslice_api.tasks import cancelled

from timeslice_driver.backends.base import TargetState
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.discovery import ScrambledListError
from timeslice_driver.inventory import InventoryError
from timeslice_driver.parts import Member, Part
from timeslice_driver.processes import ProcessId, ProcFs
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table

log = logging.getLogger(__name__)


class Watch:
    """Keeps the table true.

    Args:
        busy: whether a member is being moved; it is left alone then.
        interval_s: between looks for new accelerator state (seconds).
        claims: parts of prepared claims outlive their processes: they come back with new ones.
        on_end: told of each part whose processes have all ended, after it has left the table.
        on_process_end: told of each process of a part that has ended.
    """

    def __init__(
        self,
        table: Table,
        survey: Survey,
        procfs: ProcFs,
        *,
        busy: Callable[[Member], bool],
        interval_s: float,
        claims: ClaimParts,
        on_end: Callable[[Member], None],
        on_process_end: Callable[[ProcessId], None],
    ) -> None:
        self._table = table
        self._survey = survey
        self._procfs = procfs
        self._busy = busy
        self._interval_s = interval_s
        self._claims = claims
        self._on_end = on_end
        self._on_process_end = on_process_end
        self._descriptors: dict[ProcessId, int] = {}
        self._followed: dict[Member, frozenset[ProcessId]] = {}
        self._doubtful: set[Member] = set()
        self._dead: set[ProcessId] = set()
        self._wake = asyncio.Event()
        self._unlisten: Callable[[], None] = lambda: None
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begins, with what is in the table now."""
        self._unlisten = self._table.listen(self._follow)
        for part in self._table.parts():
            self._follow(part.member)
        self._tasks = [asyncio.create_task(self._settle_ends()), asyncio.create_task(self._look_around())]

    async def stop(self) -> None:
        """Ends; the table stays as it is."""
        self._unlisten()
        await cancelled(*self._tasks)
        for process in list(self._descriptors):
            self._forget(process)

    def _follow(self, member: Member) -> None:
        """Watches exactly the processes that the table has now."""
        part = self._table.get(member)
        family = part.family if part else frozenset()
        before = self._followed.get(member, frozenset())
        if part and not family and (before or not part.pods):  # pods may not have started anything yet
            self._doubtful.add(member)
            self._wake.set()
        if before == family:
            return
        self._followed[member] = family
        if not part:
            del self._followed[member]
        wanted: frozenset[ProcessId] = frozenset().union(*self._followed.values())
        for process in self._descriptors.keys() - wanted:
            self._forget(process)
        for process in wanted - self._descriptors.keys():
            self._remember(process)

    def _remember(self, process: ProcessId) -> None:
        try:
            descriptor = os.pidfd_open(process.pid)
        except OSError:  # ended already (ESRCH)
            self._ended(process)
            return
        if not self._procfs.alive(process):  # its number has been given to another process
            os.close(descriptor)
            self._ended(process)
            return
        self._descriptors[process] = descriptor
        asyncio.get_running_loop().add_reader(descriptor, self._ended, process)

    def _forget(self, process: ProcessId) -> None:
        descriptor = self._descriptors.pop(process, None)
        if descriptor is not None:
            asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)

    def _ended(self, process: ProcessId) -> None:
        self._forget(process)
        self._dead.add(process)
        self._doubtful |= {part.member for part in self._table.parts() if process in part.family}
        self._on_process_end(process)
        self._wake.set()

    async def _settle_ends(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            members, self._doubtful = self._doubtful, set()
            dead, self._dead = self._dead, set()
            for member in members:
                try:
                    await self._settle(member, dict.fromkeys(dead, TargetState.GONE))
                except Exception:  # the outermost loop: the other parts must not go unwatched
                    log.exception("cannot find out whether %s has ended", member, extra=member.about)

    async def _settle(self, member: Member, gone: Mapping[ProcessId, TargetState]) -> None:
        """Lets the dead go; when nobody is left, looks in the whole machine for children that nobody knew of."""
        part = self._table.get(member)
        while part and not (left := part.with_states(gone)).family:
            survivors = await self._survivors(member)
            now = self._table.get(member)
            if now is part:  # else somebody was registered meanwhile, whom the survivors may not have
                left = replace(left, family=survivors)
                break
            part = now
        if part is None:
            return
        self._let_go(left)

    def _let_go(self, part: Part) -> None:
        if part.family:
            self._table.put(part)
        else:
            log.info("%s has ended", part.member, extra=part.member.about)
            self._table.drop(part.member)
            self._on_end(part.member)

    async def _survivors(self, member: Member) -> frozenset[ProcessId]:
        part = self._table.get(member)
        try:
            return await self._survey.survivors(part) if part else frozenset()
        except InventoryError:  # its thread is stuck in the driver; what is known must do
            return frozenset()

    async def _look_around(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            try:
                await self._survey.refresh()
                await self._wake_ended()
                members = [part.member for part in self._table.parts() if not self._busy(part.member)]
                await self._survey.look(members)
            except (InventoryError, ScrambledListError) as error:
                log.warning("cannot see what is on the devices: %s", error)
            except Exception:  # the outermost loop
                log.exception("cannot look at the devices")

    async def _wake_ended(self) -> None:
        for part in self._claims.dormant:
            if await self._survey.survivors(part):
                self._claims.wake(part.member)
