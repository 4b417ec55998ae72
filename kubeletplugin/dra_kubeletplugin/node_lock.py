"""A lock that all processes of a driver on a node share."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

_SHORTEST_S = 0.01
_LONGEST_S = 0.2


class NodeLock:
    """Held by one task of one process at a time. The kernel takes it back from a process that dies.

    Tasks of this process wait in line and are woken; another process, which there is only in a rolling update, is asked
    every now and then, since the kernel has no lock with a time limit that can be given up. The file is never removed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._line = asyncio.Lock()
        self._file: int | None = None

    async def acquire(self, *, timeout_s: float | None = None) -> None:
        """Takes it. A cancelled wait leaves nothing behind.

        Raises:
            TimeoutError: not within `timeout_s` seconds.
            OSError: the file cannot be made.
        """
        async with asyncio.timeout(timeout_s):
            await self._line.acquire()
            try:
                await self._take_file()
            except BaseException:
                self._line.release()
                raise

    def release(self) -> None:
        """Gives it back."""
        if self._file is None:
            raise RuntimeError(f"{self._path} is not held")
        os.close(self._file)
        self._file = None
        self._line.release()

    @asynccontextmanager
    async def held(self, *, timeout_s: float | None = None) -> AsyncIterator[None]:
        """As a context; raises like `acquire`."""
        await self.acquire(timeout_s=timeout_s)
        try:
            yield
        finally:
            self.release()

    async def _take_file(self) -> None:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            wait_s = _SHORTEST_S
            while not _locked(file):
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _LONGEST_S)
        except BaseException:
            os.close(file)
            raise
        self._file = file


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
