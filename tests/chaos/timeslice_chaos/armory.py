"""Faults that wait in a process for their point: armed by a line on its standard input, told of on its output."""

from __future__ import annotations

import asyncio
import errno
import functools
import importlib
import inspect
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from timeslice_chaos.log import Log
from timeslice_chaos.points import Point

STRUCK = "struck "  # begins a line of standard output


@dataclass(frozen=True)
class Arm:
    """What is to happen at the `hit`-th call of a point from now on, `after` its work or before it.

    Actions: kill, stop (SIGSTOP; who armed it goes on with SIGCONT), delay (`seconds`), full (the disk is, for
    `seconds`), twice (the call is made a second time at once), late (again after `seconds`; no point that is not
    async), tell (only that).
    """

    point: str
    action: str
    after: bool = False
    hit: int = 1
    seconds: float = 0.0

    def line(self) -> str:
        """For the process's standard input."""
        return json.dumps(asdict(self))


class Armory:
    """The faults that wait in this process. Safe to use from several threads."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._arm: Arm | None = None
        self._seen = 0
        self._full_until: dict[str, float] = {}

    def take(self, line: str) -> None:
        """Arms what a line says, in place of what waited before; an empty line only disarms."""
        with self._lock:
            self._arm, self._seen = (Arm(**json.loads(line)) if line.strip() else None), 0

    def strikes(self, point: str, *, after: bool) -> Arm | None:
        """The fault whose moment this call is."""
        with self._lock:
            arm = self._arm
            if arm is None or (arm.point, arm.after) != (point, after):
                return None
            self._seen += 1
            if self._seen < arm.hit:
                return None
            self._arm = None
        self._log.say("struck", **asdict(arm))
        print(STRUCK + arm.line(), flush=True)
        return arm

    def refuse_when_full(self, point: str) -> None:
        """Raises OSError (ENOSPC) while the disk is full there."""
        if time.monotonic() < self._full_until.get(point, 0.0):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def strike(self, arm: Arm) -> None:
        """Does what does not depend on the call."""
        if arm.action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif arm.action == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        elif arm.action == "full":
            self._full_until[arm.point] = time.monotonic() + arm.seconds


def install(point: Point, armory: Armory) -> None:
    """Wraps the point's function in this process."""
    module, _, path = point.target.partition(":")
    *owners, name = path.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    kept = inspect.getattr_static(owner, name)
    wrapper = _wrapped_async if inspect.iscoroutinefunction(kept) else _wrapped
    setattr(owner, name, wrapper(point, armory, getattr(owner, name)))


def _wrapped(point: Point, armory: Armory, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*arguments: Any, **named: Any) -> Any:
        if not point.counts(*arguments):
            return function(*arguments, **named)
        for after in (False, True):
            if arm := armory.strikes(point.name, after=after):
                armory.strike(arm)
                time.sleep(arm.seconds if arm.action == "delay" else 0)
                if arm.action == "twice":
                    function(*arguments, **named)  # nobody hears the first answer, so whoever asks does so again
            if not after:
                armory.refuse_when_full(point.name)
                result = function(*arguments, **named)
        return result

    return wrapper


def _wrapped_async(point: Point, armory: Armory, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*arguments: Any, **named: Any) -> Any:
        if not point.counts(*arguments):
            return await function(*arguments, **named)
        for after in (False, True):
            if arm := armory.strikes(point.name, after=after):
                armory.strike(arm)
                await _strike_async(arm, lambda: function(*arguments, **named))
            if not after:
                result = await function(*arguments, **named)
        return result

    return wrapper


async def _strike_async(arm: Arm, again: Callable[[], Any]) -> None:
    if arm.action == "delay":
        await asyncio.sleep(arm.seconds)
    elif arm.action in ("twice", "late"):
        _repeats.add(asyncio.create_task(_repeat(arm.seconds, again)))


_repeats: set[asyncio.Task[None]] = set()  # the loop keeps only weak references


async def _repeat(seconds: float, again: Callable[[], Any]) -> None:
    await asyncio.sleep(seconds)
    await again()


def listen(armory: Armory, others: Sequence[Callable[[str], bool]]) -> None:
    """Reads standard input in a thread; each of `others` may take a line first. Its end ends the process: nobody is
    left who would."""

    def read() -> None:
        for line in sys.stdin:
            if not any(take(line.strip()) for take in others):
                armory.take(line)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=read, daemon=True).start()
