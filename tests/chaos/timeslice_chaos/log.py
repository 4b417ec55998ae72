"""What happened, a JSON object a line: each process appends to a file of its own, the checker reads all of them."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

_now = time.monotonic  # taken before a launcher makes the clock of a process jump
_PIDS = 10_000_000  # more than there can be at once


@dataclass(frozen=True)
class Event:
    """One line. `at` in seconds of CLOCK_MONOTONIC, which all processes of a machine share; `pid` of whom it is about.

    `role` is gpu, job, orchestrator, node or world.
    """

    at: float
    pid: int
    role: str
    what: str
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Any:
        return self.fields[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field, or the default."""
        return self.fields.get(name, default)


class Log:
    """One process's file. A line is with the kernel when `say` returns, so a kill -9 right after it loses nothing.

    Args:
        pid: as the machine knows this process, where that is not its own pid.
    """

    def __init__(self, folder: Path, role: str, *, pid: int = 0) -> None:
        self._role = role
        self.pid = pid or os.getpid()
        self._file = (folder / f"{role}-{self.pid}.jsonl").open("a", buffering=1, encoding="utf-8")

    def say(self, what: str, pid: int = 0, **fields: object) -> float:
        """Writes an event of this process, or of another one; when that was."""
        at = _now()
        line = {"t": at, "role": self._role, "pid": pid or self.pid, "what": what, **fields}
        self._file.write(json.dumps(line) + "\n")
        return at

    def close(self) -> None:
        """Says nothing more."""
        self._file.close()


def read(folder: Path, pattern: str = "*.jsonl") -> list[Event]:
    """The events of a run, in the order of time. A last line that a kill has cut off is no event."""
    events = [event for path in sorted(folder.glob(pattern)) for event in _read_file(path)]
    return sorted(events, key=lambda event: event.at)


def distinct(events: Iterable[Event]) -> list[Event]:
    """The same, where a job's process that was given the pid of an earlier one has a number of its own: of each pid in
    the order of time, one begins with each event `job`."""
    begun: Counter[int] = Counter()
    found = []
    for event in events:
        begun[event.pid] += event.what == "job"
        found.append(replace(event, pid=event.pid + _PIDS * max(0, begun[event.pid] - 1)))
    return found


def _read_file(path: Path) -> list[Event]:
    text = path.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    return [event_of(line) for line in whole.splitlines()]


def event_of(line: str) -> Event:
    """The event that a line tells. The GPU's own lines name no role."""
    fields = json.loads(line)
    return Event(fields.pop("t"), fields.pop("pid"), fields.pop("role", "gpu"), fields.pop("what"), fields)
