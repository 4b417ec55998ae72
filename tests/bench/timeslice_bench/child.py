"""Processes that a scenario starts: each ends with its scenario, also at Ctrl-C, and also when the bench is killed."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_LIMIT_S = 30.0
STOP_LIMIT_S = 10.0


class ChildError(Exception):
    """A child ended, or said nothing in time. The message has the last lines that it wrote."""


@dataclass(frozen=True)
class Child:
    """A running child. `ready` is the JSON object of its first line."""

    name: str
    process: asyncio.subprocess.Process
    log: Path
    ready: dict[str, Any]

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    async def ask(self, line: str, limit_s: float) -> dict[str, Any]:
        """Sends one line and returns the JSON object that comes back.

        Raises:
            ChildError: it ended, or did not answer within `limit_s` seconds.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        return await _answer(self.process, self.name, self.log, limit_s)


@asynccontextmanager
async def child(
    name: str,
    argv: Sequence[str],
    directory: Path,
    *,
    env: Mapping[str, str] | None = None,
    start_limit_s: float = START_LIMIT_S,
) -> AsyncIterator[Child]:
    """Runs a command as long as the context lasts, from the moment when it says that it is ready.

    Raises:
        ChildError: it did not come up.
    """
    log = directory / f"{name}.log"
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": _python_path(), **(env or {})},
            start_new_session=True,  # Ctrl-C reaches the bench alone, which then ends its children in order
        )
    try:
        ready = await _answer(process, name, log, start_limit_s)
        yield Child(name, process, log, ready)
    finally:
        await asyncio.shield(_end(process))


def module(name: str, *arguments: str) -> list[str]:
    """The command that runs a module of this package."""
    return [sys.executable, "-m", f"timeslice_bench.{name}", *arguments]


def _python_path() -> str:
    here = Path(__file__).resolve().parent.parent
    api_server_of_tests = here.with_name("kubeletplugin")
    return os.pathsep.join(filter(None, (str(here), str(api_server_of_tests), os.environ.get("PYTHONPATH"))))


async def _answer(process: asyncio.subprocess.Process, name: str, log: Path, limit_s: float) -> dict[str, Any]:
    assert process.stdout is not None
    try:
        async with asyncio.timeout(limit_s):
            line = await process.stdout.readline()
    except TimeoutError:
        raise ChildError(f"{name} did not answer in {limit_s:g} s: {_tail(log)}") from None
    if not line:
        raise ChildError(f"{name} ended: {_tail(log)}")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it wrote nothing")


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    assert process.stdin is not None
    process.stdin.close()  # a child of this package ends with its lifeline
    try:
        process.terminate()
        async with asyncio.timeout(STOP_LIMIT_S):
            await process.wait()
    except ProcessLookupError:
        pass
    except TimeoutError:
        process.kill()
        await process.wait()
