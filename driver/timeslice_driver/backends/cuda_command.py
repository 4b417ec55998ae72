"""The vendor's `cuda-checkpoint` command: for drivers from 555 on that lack the checkpoint functions (those before
570).

Options and output: README of github.com/NVIDIA/cuda-checkpoint. Its exit status is the CUresult; older versions exit
    with 1
and tell the error in words.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from timeslice_driver.backends.base import Capabilities
from timeslice_driver.backends.cuda_errors import MEANINGS
from timeslice_driver.backends.helper_process import HelperLostError, Reply
from timeslice_driver.faults import Fault

_STATES: Final = {"running": 0, "locked": 1, "checkpointed": 2, "failed": 3}
_WORDS: Final = {
    "invalid argument": 1,
    "out of memory": 2,
    "initialization error": 3,
    "OS call failed": 304,
    "present state": 401,
    "device not ready": 600,
    "not permitted": 800,
    "not supported": 801,
}
_BY_STATUS: Final = {code & 0xFF: code for code in MEANINGS}
_UNKNOWN: Final = 999
_NOT_SUPPORTED: Final = 801
_QUESTION_S: Final = 10.0


class CommandCalls:
    """`Calls` by one run of the command each.

    Args:
        command: its path, or its name on the PATH.
    """

    def __init__(self, command: str = "cuda-checkpoint") -> None:
        self._command = command
        self._running: set[int] = set()

    @property
    def pids(self) -> frozenset[int]:
        """See `Calls`."""
        return frozenset(self._running)

    async def open(self) -> Capabilities:
        """See `Calls`."""
        if not shutil.which(self._command):
            hint = "install it from github.com/NVIDIA/cuda-checkpoint, or driver 570 or newer, which needs no command"
            return Capabilities(
                "cuda-checkpoint", unavailable=Fault("CommandMissing", f"there is no {self._command}", hint)
            )
        if not await self._can_lock():
            hint = "install driver 570 or newer"
            fault = Fault("DriverTooOld", f"{self._command} with this driver can only toggle, not lock", hint)
            return Capabilities("cuda-checkpoint", unavailable=fault)
        return Capabilities("cuda-checkpoint", detail=self._command)

    async def close(self) -> None:
        """See `Calls`."""

    @asynccontextmanager
    async def lend(self, job_file: str = "", *, of: int = 0) -> AsyncIterator[CommandCalls]:
        """See `Calls`. The command finds a job file by itself."""
        yield self

    async def call(self, name: str, pid: int, *, deadline_s: float, timeout_ms: int = 0) -> Reply:
        """See `Session`."""
        began = time.monotonic()
        code, output, complaint = await self._run(*_arguments(name, pid, timeout_ms), deadline_s=deadline_s)
        if code:
            return Reply(_result(code, complaint), seconds=time.monotonic() - began)
        return Reply(0, _value(name, output), seconds=time.monotonic() - began)

    async def _can_lock(self) -> bool:
        """The command must know the actions, and so must the driver: an older one refuses a mere question."""
        try:
            _, output, complaint = await self._run("--help", deadline_s=_QUESTION_S)
            reply = await self.call("state", os.getpid(), deadline_s=_QUESTION_S)
        except HelperLostError:
            return False
        return "--action" in output + complaint and reply.code != _NOT_SUPPORTED

    async def _run(self, *arguments: str, deadline_s: float) -> tuple[int, str, str]:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                self._command,
                *arguments,
                stdout=pipe,
                stderr=pipe,
                process_group=0,  # as the helper's: a step is not broken off by Ctrl-C in a terminal
            )
        except OSError as error:  # no memory, processes or descriptors left, or the command is not there any more
            raise HelperLostError(f"{self._command} cannot be started: {error.strerror}") from error
        self._running.add(process.pid)
        try:
            async with asyncio.timeout(deadline_s):
                output, complaint = await process.communicate()
        except TimeoutError as error:
            raise HelperLostError(
                f"{self._command} {' '.join(arguments)} did not end within {deadline_s:g} s"
            ) from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            self._running.discard(process.pid)
        return process.returncode or 0, output.decode(errors="replace"), complaint.decode(errors="replace")


def _arguments(name: str, pid: int, timeout_ms: int) -> list[str]:
    if name == "state":
        return ["--get-state", "--pid", str(pid)]
    if name == "restore_thread":
        return ["--get-restore-tid", "--pid", str(pid)]
    limit = ["--timeout", str(timeout_ms)] if name == "lock" else []
    return ["--action", name, "--pid", str(pid), *limit]


def _result(status: int, complaint: str) -> int:
    """The CUresult behind an exit status, which has only eight bits of it; where that says nothing, the words do."""
    if status > 1:
        return _BY_STATUS.get(status, status)
    return next((number for words, number in _WORDS.items() if words in complaint), status if status > 0 else _UNKNOWN)


def _value(name: str, output: str) -> int:
    if name == "state":
        return _STATES.get(output.strip().lower(), -1)
    number = re.search(r"[0-9]{1,10}", output)
    return int(number.group()) if name == "restore_thread" and number else 0
