"""One real process of the world: started, told, heard, stopped, killed and started again."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from timeslice_chaos.armory import STRUCK, Arm
from timeslice_chaos.log import Log

START_S = 60.0
END_S = 15.0


class ChaosError(Exception):
    """The world is not as it has to be; the message says what went wrong, and where the process has told more."""


class Process:
    """A role's process in its present incarnation.

    Args:
        name: of the place that it fills, such as node-0 or job-a-1; its words go to a file of that name.
        role: of the launcher.
        ready: begins the line that it says when it serves; empty: at once.
    """

    def __init__(
        self, name: str, role: str, arguments: Sequence[str], *, env: Mapping[str, str], logs: Path, ready: str = ""
    ) -> None:
        self.name, self.role = name, role
        self._arguments, self._env, self._logs, self._ready = arguments, env, logs, ready
        self._news = threading.Condition()
        self._lines: list[tuple[float, str]] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None
        self.stopped = False

    @property
    def pid(self) -> int:
        """Of the present incarnation."""
        assert self._process
        return self._process.pid

    @property
    def status(self) -> int | None:
        """None while it lives."""
        return self._process.poll() if self._process else 0

    @property
    def words(self) -> Path:
        """Where its standard error goes."""
        return self._logs / f"{self.name}.err"

    def start(self) -> None:
        """Starts it; `wait_ready` says when it serves."""
        command = [sys.executable, "-m", "timeslice_chaos.launcher", str(self._logs), self.role, *self._arguments]
        with self.words.open("a") as words:
            self._process = subprocess.Popen(
                command, env=dict(self._env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True
            )
        self._lines, self.stopped = [], False
        self._reader = threading.Thread(target=self._read, args=(self._process, self._lines), daemon=True)
        self._reader.start()

    def wait_ready(self) -> None:
        """Returns when it serves. ChaosError when it does not."""
        if self._ready and not self.says(self._ready, within_s=START_S):
            raise ChaosError(f"{self.name} did not get ready; its words are in {self.words}")

    def _read(self, process: subprocess.Popen[str], lines: list[tuple[float, str]]) -> None:
        assert process.stdout
        with process.stdout:
            for line in process.stdout:
                with self._news:
                    lines.append((time.monotonic(), line.rstrip("\n")))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def says(self, beginning: str, *, within_s: float, since: float = 0.0) -> float | None:
        """When it said a line with that beginning, not before `since`; None when it does not, in time."""

        def found() -> float | None:
            return next((at for at, line in self._lines if at >= since and line.startswith(beginning)), None)

        with self._news:
            self._news.wait_for(lambda: found() or (self._reader and not self._reader.is_alive()), within_s)
            return found()

    def tell(self, line: str) -> None:
        """A line for its standard input."""
        assert self._process
        assert self._process.stdin
        with contextlib.suppress(OSError, ValueError):  # ended; closed, when another fault has ended it meanwhile
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def struck(self, arm: Arm, *, within_s: float) -> float | None:
        """Arms a fault; when it struck, or None when it did not in time, and is disarmed."""
        since = time.monotonic()
        self.tell(arm.line())
        at = self.says(STRUCK, within_s=within_s, since=since)
        if at is None:
            self.tell("")
        return at

    def stop(self) -> None:
        """SIGSTOP."""
        self.stopped = True
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self.stopped = False
        self._signal(signal.SIGCONT)

    def kill(self, log: Log) -> None:
        """SIGKILL; returns when it is dead."""
        assert self._process
        if self.status is None:
            log.say("kills", pid=self.pid, name=self.name)
            self._process.kill()
        self._close()

    def end(self) -> int:
        """SIGTERM; its exit status. ChaosError when it does not end."""
        assert self._process
        self.go_on()
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            raise ChaosError(f"{self.name} did not end within {END_S:g} s of SIGTERM") from None
        finally:
            self._close()
        return self._process.returncode

    def reap(self) -> int:
        """Takes leave of one that has ended; its exit status."""
        self._close()
        assert self._process
        return self._process.returncode

    def _close(self) -> None:
        assert self._process
        assert self._reader
        self._process.wait(END_S)
        self._reader.join(END_S)
        assert self._process.stdin
        with contextlib.suppress(OSError):
            self._process.stdin.close()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)


def eventually(condition: Callable[[], object], within_s: float) -> bool:
    """Whether it came about in time; for what nobody tells."""
    until = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True
