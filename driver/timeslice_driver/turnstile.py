"""Lets operations through one at a time per device, in the order in which they came; those on other devices do not
wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class Turnstile:
    """Fair, and free of deadlocks: an operation takes its place at all its devices at once."""

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Future[None]] = {}

    @asynccontextmanager
    async def turn(self, device_ids: Iterable[str]) -> AsyncIterator[None]:
        """Waits for all earlier operations on any of the devices; the block then has them for itself."""
        wanted = set(device_ids)
        before = {self._last[device_id] for device_id in wanted if device_id in self._last}
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._last |= dict.fromkeys(wanted, mine)
        try:
            for earlier in before:
                await asyncio.shield(earlier)
            yield
        finally:
            self._leave(wanted, before, mine)

    def _leave(self, wanted: set[str], before: set[asyncio.Future[None]], mine: asyncio.Future[None]) -> None:
        """Whoever leaves before its turn (cancelled) still holds its place until the earlier ones are through."""
        earlier = [future for future in before if not future.done()]
        if earlier:
            waiting = asyncio.gather(*map(asyncio.shield, earlier), return_exceptions=True)
            waiting.add_done_callback(lambda _: self._free(wanted, mine))
        else:
            self._free(wanted, mine)

    def _free(self, wanted: set[str], mine: asyncio.Future[None]) -> None:
        if not mine.done():
            mine.set_result(None)
        for device_id in wanted:
            if self._last.get(device_id) is mine:
                del self._last[device_id]

    async def all_through(self) -> None:
        """Waits until every operation that has come by now is through."""
        waiting = {future for future in self._last.values() if not future.done()}
        if waiting:
            await asyncio.wait(waiting)
