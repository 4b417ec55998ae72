"""Everything that moves parts goes through here: one at a time per device, nothing stale, nothing done twice."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from timeslice_driver.converge import Convergence, Workshop
from timeslice_driver.faults import Fault
from timeslice_driver.fencing import Watermark
from timeslice_driver.parts import Member, Part, PartState
from timeslice_driver.turnstile import Turnstile

_REMEMBERED: Final = 1024  # commands, for those that are received twice


@dataclass(frozen=True)
class Command:
    """See `Command` in agent_link.proto."""

    command_id: int
    epoch: int
    token: int
    targets: Mapping[Member, PartState | None]
    lock_timeout_s: float = 0.0


@dataclass(frozen=True)
class Answer:
    """The parts that a command named and that exist, as they are after it; or why it was refused."""

    command: Command
    parts: tuple[Part, ...] = ()
    refused: Fault | None = None


class Commands:
    """Takes commands, and moves without a command.

    Args:
        lock_timeout_s: for those that bring none (seconds).
    """

    def __init__(self, shop: Workshop, *, lock_timeout_s: float) -> None:
        self._shop = shop
        self._lock_timeout_s = lock_timeout_s
        self._turnstile = Turnstile()
        self._known: OrderedDict[tuple[int, int], asyncio.Task[Answer]] = OrderedDict()
        self._moves: set[asyncio.Task[tuple[Part, ...]]] = set()
        self._busy: dict[Member, int] = {}
        self.watermark = Watermark()

    def busy(self, member: Member) -> bool:
        """Something that moves this member is under way; its state is in transit."""
        return member in self._busy

    async def obey(self, command: Command) -> Answer:
        """Carries a command out, unless it is stale. One that comes twice is carried out once and answered twice, the
        second time by how its parts are by then: whoever moved them since has made the first answer untrue."""
        key = (command.epoch, command.command_id)
        if known := self._known.get(key):
            await asyncio.shield(known)
            return Answer(command, self._existing(command.targets))
        if refused := self.watermark.refuse(command.epoch, command.token):
            return Answer(command, refused=refused)
        self.watermark = self.watermark.raised(command.epoch, command.token)
        obeying = self._known[key] = asyncio.create_task(self._carry_out(command))
        while len(self._known) > _REMEMBERED and next(iter(self._known.values())).done():
            self._known.popitem(last=False)
        return await asyncio.shield(obeying)

    async def bring(
        self, targets: Mapping[Member, PartState | None], *, lock_timeout_s: float = 0.0
    ) -> tuple[Part, ...]:
        """Moves parts as a command would, for somebody on this node. Goes on when its caller is gone."""
        move = asyncio.create_task(self._move(targets, lock_timeout_s))
        self._moves.add(move)
        move.add_done_callback(self._moves.discard)
        return await asyncio.shield(move)

    async def all_done(self) -> None:
        """Waits until everything that is under way now has ended; each thing is limited in time."""
        await self._turnstile.all_through()

    async def _carry_out(self, command: Command) -> Answer:
        return Answer(command, await self._move(command.targets, command.lock_timeout_s))

    async def _move(self, targets: Mapping[Member, PartState | None], lock_timeout_s: float) -> tuple[Part, ...]:
        parts = self._existing(targets)
        devices = {device_id for part in parts for device_id in part.device_ids}
        for member in targets:
            self._busy[member] = self._busy.get(member, 0) + 1
        try:
            async with self._turnstile.turn(devices):
                await Convergence(self._shop, targets, lock_timeout_s=lock_timeout_s or self._lock_timeout_s).run()
        finally:
            for member in targets:
                self._busy[member] -= 1
                if not self._busy[member]:
                    del self._busy[member]
        return self._existing(targets)

    def _existing(self, members: Collection[Member]) -> tuple[Part, ...]:
        return tuple(part for member in members if (part := self._shop.table.get(member)))
