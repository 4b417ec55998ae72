"""Helpers for as many operations as go on at once, so that one which hangs takes no other with it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from timeslice_driver.backends.helper_process import Greeting, HelperLostError, HelperProcess
from timeslice_driver.job_files import JobFiles

_KEPT: Final = 16  # job files whose helpers wait for the next operation: each job has another, and jobs come and go


class HelperPool:
    """Lends helpers, each to one borrower at a time. The first is started ahead; further ones when they are needed.

    Args:
        library: path or name of libcuda.so.1.
        job_files: where helpers get those of processes.
        start_s: how long a helper may take to initialise the driver (seconds).
    """

    def __init__(self, library: str, job_files: JobFiles, *, start_s: float) -> None:
        self._library = library
        self._job_files = job_files
        self._start_s = start_s
        self._idle: dict[str, list[HelperProcess]] = {}
        self._all: set[HelperProcess] = set()

    @property
    def pids(self) -> frozenset[int]:
        """Of all helpers that run."""
        return frozenset(helper.pid for helper in self._all)

    async def warm_up(self) -> Greeting:
        """Starts the first helper, and says what it found. Raises HelperLostError."""
        async with self.lend() as helper:
            return helper.greeting

    @asynccontextmanager
    async def lend(self, job_file: str = "", *, of: int = 0) -> AsyncIterator[HelperProcess]:
        """A helper for the block's duration; a job file, by its key, gets helpers of its own, which have it open as
        process `of` has.

        Raises:
            HelperLostError: none could be started.
        """
        helper = await self._take(job_file, of)
        try:
            yield helper
        finally:
            if helper.usable:
                self._idle[job_file] = [*self._idle.pop(job_file, ()), helper]  # whose turn was last is the last
                await self._end(*self._beyond())
            else:
                await self._end(helper)

    async def close(self) -> None:
        """Ends all helpers."""
        helpers, self._all, self._idle = self._all, set(), {}
        await asyncio.gather(*(helper.kill() for helper in helpers))

    async def _take(self, job_file: str, of: int) -> HelperProcess:
        idle = self._idle.get(job_file, [])
        while idle:
            helper = idle.pop()
            if helper.usable:
                return helper
            await self._end(helper)
        helper = await self._started(job_file, of)
        self._all.add(helper)
        if helper.greeting.error:
            await self._end(helper)
            raise HelperLostError(helper.greeting.error)
        return helper

    async def _started(self, job_file: str, of: int) -> HelperProcess:
        if not job_file:
            return await HelperProcess.start(self._library, timeout_s=self._start_s)
        try:
            descriptor = self._job_files.opened(of, job_file)
        except OSError as error:
            raise HelperLostError(f"no job file for a helper: {error.strerror}") from error
        try:
            return await HelperProcess.start(self._library, job_file=descriptor, timeout_s=self._start_s)
        finally:
            os.close(descriptor)

    def _beyond(self) -> list[HelperProcess]:
        """Takes those out that wait for operations on other job files than the last few."""
        files = [job_file for job_file in self._idle if job_file]
        return [helper for job_file in files[:-_KEPT] for helper in self._idle.pop(job_file)]

    async def _end(self, *helpers: HelperProcess) -> None:
        self._all.difference_update(helpers)
        await asyncio.gather(*(helper.kill() for helper in helpers))


__all__ = ["HelperLostError", "HelperPool"]
