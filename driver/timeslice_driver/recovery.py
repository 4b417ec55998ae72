"""Finds out, at a start, what is parked: from the journal, from the driver, and where the journal is lost, from the
environment of living processes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import replace

from timeslice_api.errors import JournalCorrupt

from timeslice_driver.backends.base import TargetState
from timeslice_driver.discovery import ScrambledListError
from timeslice_driver.fencing import Watermark
from timeslice_driver.inventory import Inventory, InventoryError
from timeslice_driver.journal import Journal
from timeslice_driver.marks import Marks
from timeslice_driver.parts import Member, Part
from timeslice_driver.processes import ProcFs
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table

log = logging.getLogger(__name__)


class Recovery:
    """Fills the table.

    Args:
        covered: the devices that a part in a group covers when its record is lost; none for a group that is not here.
        own_pids: processes of the node, which are of no job whatever their environment says.
        marks: what no record tells of is looked for by the marks of processes. None where claims tell it.
    """

    def __init__(
        self,
        table: Table,
        *,
        covered: Callable[[str], tuple[str, ...]],
        procfs: ProcFs,
        inventory: Inventory,
        survey: Survey,
        own_pids: Collection[int],
        marks: Marks | None,
    ) -> None:
        self._table = table
        self._covered = covered
        self._procfs = procfs
        self._inventory = inventory
        self._survey = survey
        self._own_pids = own_pids
        self._marks = marks
        self.notice = ""
        self.without_record: frozenset[Member] = frozenset()  # those whose devices nothing tells

    async def run(self, journal: Journal) -> Watermark:
        """Returns the newest epoch and token that are known. Never fails: what is lost is told in `notice`."""
        try:
            record = journal.load()
        except JournalCorrupt as error:
            self.notice = str(error)
            log.error("%s", error)
            if self._marks:
                await self._from_marks(self._marks)
            return Watermark()
        if record is None:
            return Watermark()
        if record.boot_id == self._procfs.boot_id():
            await self._from_record(await asyncio.to_thread(self._living, record.parts))
        return record.watermark

    def _living(self, parts: Collection[Part]) -> list[Part]:
        """Those with processes that still live."""
        living = []
        for part in parts:
            held = {process: each for process, each in part.held.items() if self._procfs.alive(process)}
            if family := self._procfs.family(part.roots | held.keys()):
                living.append(replace(part, held=held, family=family))
        return living

    async def _from_record(self, parts: Collection[Part]) -> None:
        """The driver tells the states of their processes."""
        for part in parts:
            self._table.put(part)
        members = [part.member for part in parts]
        await self._survey.ask(members)
        await self._look(members)

    async def _from_marks(self, marks: Marks) -> None:
        """Processes that were started with a job's and a group's name; parked ones are asked for, not seen."""
        marked = await self._inventory.run(lambda: self._marked(marks))
        self.without_record = frozenset(marked)
        for member, part in marked.items():
            text = "%s is found again by the environment of %d processes"
            log.warning(text, member, len(part.roots), extra=member.about)
            self._table.put(part)
        await self._look(list(marked), thorough=True)

    def _marked(self, marks: Marks) -> dict[Member, Part]:
        parts: dict[Member, Part] = {}
        for pid in self._procfs.pids():
            mark = marks.of(pid) if pid not in self._own_pids else None
            root = self._procfs.identity(pid) if mark else None
            if mark and root and (device_ids := self._covered(mark.group_id)):
                member = Member(mark.job_id, mark.group_id)
                part = parts.get(member, Part(member, device_ids))
                parts[member] = replace(part, roots=part.roots | {root}, family=part.family | {root})
        return parts

    async def _look(self, members: Collection[Member], *, thorough: bool = False) -> None:
        try:
            await self._survey.look(members, thorough=thorough)
        except (InventoryError, ScrambledListError) as error:
            log.error("cannot see what is on the devices: %s", error)
        for part in filter(None, map(self._table.get, members)):  # a copy that the last node began may be under way
            moved = [p for p, held in part.held.items() if held.state is not TargetState.RUNNING]
            self._table.put(part.doubt(moved))
