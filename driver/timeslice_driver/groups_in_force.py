"""Which groups jobs may register in now: those that the node declares, or those that its orchestrator tells.

On Kubernetes the node's prepared claims are the truth: they make the groups, and the orchestrator's are compared only.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Final

from timeslice_api.errors import Unavailable

from timeslice_driver.groups import Groups
from timeslice_driver.parts import Member, Part
from timeslice_driver.table import Table

log = logging.getLogger(__name__)

_TOLD_WITHIN_S: Final = 5.0  # less than a client waits for the answer to its registration


class GroupsInForce:
    """Replaced as a whole; only the orchestrator replaces them, or, where `claimed`, the claims.

    Args:
        declared: by the node's configuration, or its claims. In force for good without an orchestrator; with one it is
            what the node tells it, and no more.
        table: of the parts, which keep their devices whatever becomes of their groups.
        orchestrated: there is an orchestrator, which tells the groups with its first welcome.
        claimed: the groups are those of the prepared claims, whoever orchestrates.
    """

    def __init__(self, declared: Groups, table: Table, *, orchestrated: bool, claimed: bool = False) -> None:
        self.declared = declared
        self.now = Groups() if orchestrated and not claimed else declared
        self.unsure: frozenset[Member] = frozenset()  # parts found again without a record: on any device, until told
        self._table = table
        self._claimed = claimed
        self._unknown: frozenset[str] = frozenset()
        self._known = asyncio.Event()
        if claimed or not orchestrated:
            self._known.set()

    async def known(self) -> Groups:
        """The groups now; waits for the first welcome, but not for long.

        Raises:
            Unavailable: it has not come.
        """
        try:
            async with asyncio.timeout(_TOLD_WITHIN_S):
                await self._known.wait()
        except TimeoutError:
            raise Unavailable(
                "this node does not know its groups yet: its orchestrator has not welcomed it",
                hint="is the orchestrator running, at the address that the node was given?",
            ) from None
        return self.now

    def declare(self, groups: Groups) -> None:
        """Takes what the claims make of the devices now."""
        self.now = self.declared = groups

    def adopt(self, groups: Groups) -> None:
        """Takes what the orchestrator tells."""
        if self._claimed:
            self._compare_claimed(groups)
            return
        if groups == self.now and self._known.is_set():
            return
        self.now = groups
        self._known.set()
        log.info("groups: %s", groups)
        for part in self._table.parts():
            self._compare(part, groups.devices.get(part.member.group_id, ()))
        self.unsure = frozenset()

    def _compare_claimed(self, groups: Groups) -> None:
        unknown = frozenset(self.declared.devices.keys() - groups.devices.keys())
        for group_id in sorted(unknown - self._unknown):
            log.warning(
                "the orchestrator has no group %s, of which claims are prepared here, and grants nothing in it: "
                "is there a TimesliceGroup of that name?",
                group_id,
                extra={"group_id": group_id},
            )
        self._unknown = unknown

    def _compare(self, part: Part, device_ids: tuple[str, ...]) -> None:
        if part.member in self.unsure and device_ids:
            self._table.put(replace(part, device_ids=device_ids))
        elif left := sorted(set(part.device_ids) - set(device_ids)):
            text = "%s keeps %s until it ends, which its group does not have"
            log.warning(text, part.member, ", ".join(left), extra=part.member.about)
