"""A piece of work that looks at the whole of what is known after it has changed, and mends what differs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from dra_kubeletplugin.apiserver import ApiServerError, Backoff

_log = logging.getLogger(__name__)


class Passes:
    """Runs `step` after each `wake`, never twice at once; what changes during `gather_s` seconds is one pass.

    Args:
        name: for the log.
        step: does one pass; returns after how many seconds the next one is due though nothing changes, or None.
        gather_s: how long changes are gathered.
        backoff: waits after passes that failed.
    """

    def __init__(
        self, name: str, step: Callable[[], Awaitable[float | None]], *, gather_s: float, backoff: Backoff | None = None
    ) -> None:
        self._name = name
        self._step = step
        self._gather_s = gather_s
        self._backoff = backoff or Backoff(shortest_s=0.5, longest_s=30.0)
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """Something changed."""
        self._woken.set()

    async def run(self) -> None:
        """Until it is cancelled. A pass that fails is logged and done again, later each time."""
        due_s: float | None = 0.0
        while True:
            await self._wait(due_s)
            await asyncio.sleep(self._gather_s)
            self._woken.clear()
            due_s = await self._pass()

    async def _wait(self, due_s: float | None) -> None:
        try:
            async with asyncio.timeout(due_s):
                await self._woken.wait()
        except TimeoutError:
            pass

    async def _pass(self) -> float | None:
        try:
            due_s = await self._step()
        except ApiServerError as error:
            wait_s = self._backoff.next_s()
            _log.warning("%s: %s; next try in %.1f s", self._name, error, wait_s)
        except Exception:  # noqa: BLE001 - outermost frame of a task: one bad object must not end the work for all others
            wait_s = self._backoff.next_s()
            _log.exception("%s failed; next try in %.1f s", self._name, wait_s)
        else:
            self._backoff.reset()
            return due_s
        await asyncio.sleep(wait_s)
        return 0.0
