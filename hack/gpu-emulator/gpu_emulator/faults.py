"""Scripted faults: which call they hit, and what happens then."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One entry of a fault script.

    It hits calls named ``call``: ``lock``, ``checkpoint``, ``restore``, ``unlock``, ``get_state``, ``get_restore_tid``,
    ``alloc``, ``free``, ``context``, ``meminfo``, ``init``, ``nvml`` (every NVML function) or one NVML function by its
    name without version suffix. ``pid`` narrows it to a process (the target of a checkpoint call, else the caller): a
    pid, or a name given by GPU_EMULATOR_NAME. ``nth`` counts from 1 the calls that match; without it every one is hit.

    In this order: ``delay_ms`` passes; ``poison`` and ``fail_state`` mark the target, ``kill_target`` kills it;
    ``crash_caller`` (SIGSEGV) or ``hang`` (until the caller dies) happen; the call returns ``rc`` without having done
    anything, or does its work with ``bandwidth`` (bytes per second) when there is no ``rc``. With ``after`` the work is
    done first, and then all this happens: an answer that is lost.
    """

    call: str
    pid: int | str | None = None
    nth: int | None = None
    rc: int | None = None
    delay_ms: float = 0
    hang: bool = False
    poison: bool = False
    fail_state: bool = False
    kill_target: bool = False
    crash_caller: bool = False
    bandwidth: int | None = None
    after: bool = False

    @staticmethod
    def from_json(entry: Any) -> "Fault":
        """ValueError names what is wrong with the entry."""
        if not isinstance(entry, dict) or not isinstance(entry.get("call"), str):
            raise ValueError(f"a fault is an object with a call: {entry!r}")
        unknown = entry.keys() - {field.name for field in fields(Fault)}
        if unknown:
            raise ValueError(f"unknown field of a fault: {', '.join(sorted(unknown))}")
        return Fault(**entry)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def told(self) -> dict[str, Any]:
        """Only what differs from a fault that does nothing."""
        return {field.name: value for field in fields(self) if (value := getattr(self, field.name)) != field.default}

    @property
    def code(self) -> int | None:
        """The code to return, None when the call is to do its work. Marks that leave no way to succeed imply one."""
        if self.rc is not None:
            return self.rc
        if self.poison:
            return 2
        return 999 if self.fail_state or self.kill_target else None


@dataclass
class _Entry:
    fault: Fault
    seen: int = 0


class FaultScript:
    """The faults in force, each with its count of calls seen."""

    def __init__(self, faults: list[Fault]) -> None:
        self._entries = [_Entry(fault) for fault in faults]

    @staticmethod
    def load(path: Path) -> "FaultScript":
        """Reads a JSON list; ValueError names the file."""
        try:
            entries = json.loads(path.read_text())
            return FaultScript([Fault.from_json(entry) for entry in entries])
        except (OSError, TypeError, ValueError) as error:
            raise ValueError(f"{path}: {error}") from error

    def add(self, fault: Fault) -> None:
        self._entries.append(_Entry(fault))

    def clear(self) -> None:
        self._entries.clear()

    def match(self, calls: tuple[str, ...], pid: int, name: str) -> Fault | None:
        """Counts the call in every entry that it matches; the first entry whose turn has come is the one that hits."""
        hit: Fault | None = None
        for entry in self._entries:
            fault = entry.fault
            if fault.call not in calls or fault.pid not in (None, pid, name):
                continue
            entry.seen += 1
            if hit is None and fault.nth in (None, entry.seen):
                hit = fault
        return hit
