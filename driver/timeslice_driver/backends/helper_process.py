"""The node's side of `cuda_helper`: starts it, asks it, and kills it when it does not answer in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from timeslice_api.tasks import cancelled

from timeslice_driver.job_files import VARIABLE

log = logging.getLogger(__name__)

_REAP_S = 5.0  # a process in uninterruptible sleep may outlast its SIGKILL; then it is left to the kernel


class HelperLostError(Exception):
    """The helper hung or ended while a call was under way; what the call did is not known."""


@dataclass(frozen=True)
class Reply:
    """One call's CUresult, the value of a query, and how long the driver took (seconds)."""

    code: int
    value: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Greeting:
    """What a helper found: whether the library could be loaded, cuInit's result, versions, and functions it lacks."""

    error: str = ""
    code: int = 0
    version: int = 0
    missing: tuple[str, ...] = ()


class HelperProcess:
    """One running helper. Calls may overlap."""

    def __init__(
        self, process: subprocess.Popen[bytes], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._last_id = 0
        self._listening: asyncio.Task[None] | None = None
        self.greeting = Greeting(error="the helper has not answered yet")

    @classmethod
    async def start(cls, library: str, *, job_file: int | None = None, timeout_s: float) -> HelperProcess:
        """Starts a helper, which inherits a job file's descriptor, and waits until the driver is initialised there.

        Raises:
            HelperLostError: it cannot be started, ended, or did not get ready within the time limit (seconds).
        """
        try:
            process, ours = _started(library, job_file)
        except OSError as error:  # no memory, processes or descriptors left
            raise HelperLostError(f"no helper can be started: {error.strerror}") from error
        try:
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:  # nobody wants it any more
            ours.close()
            process.kill()
            await asyncio.to_thread(process.wait, _REAP_S)
            raise
        helper = cls(process, reader, writer)
        try:
            async with asyncio.timeout(timeout_s):
                helper.greeting = await helper._greet()
        except TimeoutError as error:
            await helper.kill()
            raise HelperLostError(f"the helper did not get ready within {timeout_s:g} s") from error
        except BaseException:  # ended, or nobody wants it any more
            await helper.kill()
            raise
        helper._listening = asyncio.create_task(helper._listen())
        return helper

    @property
    def pid(self) -> int:
        """Of the helper; it is a client of the driver and no part of any job."""
        return self._process.pid

    @property
    def usable(self) -> bool:
        """Whether it still listens."""
        return self._listening is not None and not self._listening.done()

    async def call(self, name: str, pid: int, *, deadline_s: float, timeout_ms: int = 0) -> Reply:
        """Asks the driver one thing.

        Raises:
            HelperLostError: it did not answer within `deadline_s` (seconds) and was killed, or it ended.
        """
        if not self.usable:
            raise HelperLostError("the helper has ended")
        self._last_id = number = self._last_id + 1
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        request = {"id": number, "call": name, "pid": pid, "timeout_ms": timeout_ms}
        self._writer.write(json.dumps(request).encode() + b"\n")
        try:
            async with asyncio.timeout(deadline_s):
                return await answer
        except TimeoutError as error:
            log.error("%s of process %d did not return within %g s; replacing the helper", name, pid, deadline_s)
            await self.kill()
            raise HelperLostError(f"{name} of process {pid} did not return within {deadline_s:g} s") from error
        finally:
            self._waiting.pop(number, None)

    async def kill(self) -> None:
        """Ends it, whatever it does. Calls under way fail. Safe to repeat."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
        self._fail_waiting("the helper was killed")
        if self._listening:
            await cancelled(self._listening)
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()
        await self._reap()

    async def _reap(self) -> None:
        try:
            await asyncio.to_thread(self._process.wait, _REAP_S)
        except subprocess.TimeoutExpired:
            log.error("helper %d does not end although it was killed; the driver may be stuck", self._process.pid)

    async def _greet(self) -> Greeting:
        message = await self._read()
        if not message["ready"]:
            return Greeting(error=message["error"])
        return Greeting(code=message["rc"], version=message["version"], missing=tuple(message["missing"]))

    async def _listen(self) -> None:
        try:
            while True:
                message = await self._read()
                answer = self._waiting.get(message["id"])
                if answer and not answer.done():
                    answer.set_result(Reply(message["rc"], message["value"], message["seconds"]))
        except HelperLostError:
            self._fail_waiting("the helper has ended; did the driver library crash?")

    async def _read(self) -> dict[str, Any]:
        try:
            line = await self._reader.readline()
        except OSError as error:
            raise HelperLostError(str(error)) from error
        if not line:
            raise HelperLostError("the helper has ended")
        message: dict[str, Any] = json.loads(line)
        return message

    def _fail_waiting(self, why: str) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(HelperLostError(why))


def _started(library: str, job_file: int | None) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """A new process, and this side of its socket. Returns once it has exec'ed, some milliseconds."""
    ours, theirs = socket.socketpair()
    inherited = [] if job_file is None else [job_file]
    environ = {} if job_file is None else {VARIABLE: f"/proc/self/fd/{job_file}"}
    command = [sys.executable, "-m", "timeslice_driver.backends.cuda_helper", library, str(theirs.fileno())]
    with theirs:
        try:
            process = subprocess.Popen(
                command,
                pass_fds=[theirs.fileno(), *inherited],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **environ},
                process_group=0,  # Ctrl-C in a terminal is for the node, which ends after what is under way
            )
        except BaseException:
            ours.close()
            raise
    return process, ours
