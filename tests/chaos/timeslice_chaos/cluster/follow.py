"""Follows the logs of jobs and GPUs while they are written."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from timeslice_chaos.log import Event, event_of

_PROGRAM = b"timeslice_chaos.pod"
DOING = {"asks": "waiter", "granted": "holder", "yields": "", "yielded": ""}


class Tail:
    """What is added to a file from an offset on; by default all of it. No file is an empty one."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path, self._offset = path, offset

    @classmethod
    def from_now(cls, path: Path) -> Tail:
        """What will be added from this moment on."""
        return cls(path, path.stat().st_size if path.exists() else 0)

    def lines(self) -> list[str]:
        """Whole lines since the last time."""
        if not self._path.exists() or self._path.stat().st_size == self._offset:
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._offset += len(whole)
        return whole.decode().splitlines()

    def events(self) -> list[Event]:
        """The same, as events."""
        return [event_of(line) for line in self.lines()]


@dataclass
class JobProcess:
    """A job's process: its place among all of the world's, its pod, and what it is: holder, waiter or neither."""

    pid: int
    place: str
    pod: str = ""
    is_: str = ""
    said_goodbye: bool = False
    buried: bool = False

    @property
    def lives(self) -> bool:
        """Whether it runs, or is stopped."""
        try:
            return _PROGRAM in Path(f"/proc/{self.pid}/cmdline").read_bytes()
        except OSError:
            return False


class Jobs:
    """What the jobs' processes do, by what they have logged. Safe to use from several threads.

    Args:
        folders: of logs, by the name of the place that a process fills.
    """

    def __init__(self, folders: Mapping[str, Path]) -> None:
        self._folders = folders
        self._lock = threading.Lock()
        self._tails: dict[Path, Tail] = {}
        self._processes: dict[Path, JobProcess] = {}
        self._grants: dict[str, list[float]] = {place: [] for place in folders}

    def living(self) -> list[JobProcess]:
        """Those that have not ended."""
        return [process for process in self.all() if not process.buried and process.lives]

    def departed(self) -> list[JobProcess]:
        """Those that have ended since the last call."""
        found = [process for process in self.all() if not process.buried and not process.lives]
        for process in found:
            process.buried = True
        return found

    def said_goodbye(self, pod: str) -> int:
        """The pid of a process of that pod that has; 0 for none."""
        return next((process.pid for process in self.all() if process.pod == pod and process.said_goodbye), 0)

    def all(self) -> list[JobProcess]:
        """Those that have ever been."""
        with self._lock:
            for place, folder in self._folders.items():
                for path in folder.glob("*.jsonl"):
                    self._read(place, path)
            return list(self._processes.values())

    def granted(self, since: float) -> dict[str, float]:
        """The first grant since then of each place that has had one."""
        self.all()
        with self._lock:
            return dict(self._first_grants(since))

    def _first_grants(self, since: float) -> Iterator[tuple[str, float]]:
        for place, times in self._grants.items():
            index = bisect.bisect_left(times, since)
            if index < len(times):
                yield place, times[index]

    def _read(self, place: str, path: Path) -> None:
        tail = self._tails.setdefault(path, Tail(path))
        for event in tail.events():
            if event.what == "started":
                self._processes[path] = JobProcess(event.pid, place, event["pod"])
            process = self._processes[path]
            process.is_ = DOING.get(event.what, process.is_)
            process.said_goodbye = process.said_goodbye or event.what in ("ends", "refused", "broken")
            if event.what == "granted":
                self._grants[place].append(event.at)
