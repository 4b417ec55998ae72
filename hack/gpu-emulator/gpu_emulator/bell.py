"""Waiting for a change without polling."""

import asyncio
from collections.abc import Callable


class Bell:
    """Wakes everybody who waits for a condition, whenever something has changed."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def ring(self) -> None:
        self._event.set()
        self._event = asyncio.Event()

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self._event.wait()
