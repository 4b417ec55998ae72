"""A store whose writes take their time, end when the test says so, and may fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from timeslice_api.errors import QueueFull, StoreFailed
from timeslice_orchestrator.core.events import AcquireRequested
from timeslice_orchestrator.store import StoredRecord


class SlowStore:
    """Keeps each write under way until `land`."""

    def __init__(self) -> None:
        self.epoch = 1
        self.asked: list[list[StoredRecord]] = []
        self._flights: list[asyncio.Future[None]] = []

    def write(self, saves: Iterable[StoredRecord], drops: Iterable[StoredRecord] = ()) -> asyncio.Future[None]:
        assert all(flight.done() for flight in self._flights), "a write before the one before it had ended"
        self.asked.append([*saves, *drops])
        self._flights.append(asyncio.get_running_loop().create_future())
        return self._flights[-1]

    def check_room(self, event: AcquireRequested) -> None:
        if len(event.holder) > 100:
            raise QueueFull("no room")

    def raise_epoch(self, above: int) -> None:
        self.epoch = above + 1

    async def under_way(self, number: int = 1) -> list[StoredRecord]:
        """Waits until that many writes have been asked for; the last one's records."""
        async with asyncio.timeout(5):
            while len(self.asked) < number:
                await asyncio.sleep(0.001)
        return self.asked[-1]

    async def land(self, error: Exception | None = None) -> None:
        """Ends the write that is under way."""
        flight = self._flights[-1]
        if error is None:
            flight.set_result(None)
        else:
            flight.set_exception(error)
        await asyncio.sleep(0.005)

    async def fail(self) -> None:
        """The write that is under way fails."""
        await self.land(StoreFailed("no answer", hint="look at the API server"))

    @property
    def cancelled(self) -> bool:
        """Whether the last write was broken off."""
        return self._flights[-1].cancelled()
