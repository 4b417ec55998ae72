"""Processes as the kernel tells of them: identity, family, environment, and the device files they have open.

Everything here reads procfs(5) and may block for as long as that takes (about 20 microseconds per process).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from timeslice_api.bounded_files import content_of

_CHUNK: Final = 1 << 13  # more than nearly all files of a process have
_LARGEST: Final = 64 << 20  # bytes: the children of one process, as many as a machine may have
# Bytes that execve(2) lets a process have of arguments and environment, and of one variable. Later it may say that any
# of its memory is its environment, and as much of it as it likes (PR_SET_MM_MAP, prctl(2)).
_LONGEST_ENVIRONMENT: Final = 6 << 20
_LONGEST_VARIABLE: Final = 128 << 10
_LONGEST_BOOT_ID: Final = 1 << 10  # bytes


@dataclass(frozen=True, order=True)
class ProcessId:
    """One process and no later one with its number, within one boot of the machine.

    Attributes:
        pid: as this node sees it (host pid).
        start_time: clock ticks between boot and its start, field 22 of /proc/PID/stat.
    """

    pid: int
    start_time: int

    def __str__(self) -> str:
        return f"process {self.pid}"


@dataclass(frozen=True)
class Stat:
    """What of /proc/PID/stat is of use here. `state` is the letter (R, S, D, T, t, Z, ...)."""

    identity: ProcessId
    state: str
    parent: int
    session: int

    @property
    def ended(self) -> bool:
        """It has exited, although its parent may not have noticed."""
        return self.state in "ZXx"

    @property
    def stopped(self) -> bool:
        """A signal or a debugger has stopped it."""
        return self.state in "Tt"


def parse_stat(text: bytes) -> Stat:
    """One line of /proc/PID/stat. The command in parentheses may itself hold blanks and parentheses.

    Raises:
        ValueError: it is none.
    """
    head, _, tail = text.rpartition(b")")
    fields = tail.split()
    try:
        identity = ProcessId(pid=int(head.split(None, 1)[0]), start_time=int(fields[19]))
        return Stat(identity, state=fields[0].decode("ascii"), parent=int(fields[1]), session=int(fields[3]))
    except IndexError as error:
        raise ValueError(f"it has only {len(fields)} fields after the command") from error


class ProcFs:
    """A mounted procfs.

    Args:
        root: where it is mounted; tests give a tree of their own.
        boot_id_file: read for the boot id instead of the kernel's; tests let a machine start anew by it.
    """

    def __init__(self, root: Path = Path("/proc"), boot_id_file: Path | None = None) -> None:
        self._root = str(root)
        self._boot_id_file = boot_id_file or root / "sys/kernel/random/boot_id"

    def boot_id(self) -> str:
        """A name of this boot of the machine, empty when nobody tells; start times of another boot mean nothing."""
        try:
            return content_of(self._boot_id_file, _LONGEST_BOOT_ID).decode().strip()
        except (OSError, ValueError):
            return ""

    def available_memory(self) -> int:
        """Bytes that processes can still get without swapping (MemAvailable)."""
        return self._meminfo(b"MemAvailable:")

    def total_memory(self) -> int:
        """Bytes of memory in the machine (MemTotal)."""
        return self._meminfo(b"MemTotal:")

    def total_swap(self) -> int:
        """Bytes of swap space in the machine (SwapTotal)."""
        return self._meminfo(b"SwapTotal:")

    def stat(self, pid: int) -> Stat | None:
        """None when there is no such process."""
        text = self._read(f"{pid}/stat")
        try:
            return parse_stat(text) if text else None
        except ValueError:  # read while it ended
            return None

    def identity(self, pid: int) -> ProcessId | None:
        """None when there is no such process, it has ended, or `pid` is the number of a thread.

        The kernel and the CUDA driver both take a thread's number for its process (cuda-checkpoint issue 41).
        """
        stat = self.stat(pid)
        if stat is None or stat.ended or self._status(pid, "Tgid") != str(pid):
            return None
        return stat.identity

    def alive(self, process: ProcessId) -> bool:
        """Whether that very process still runs."""
        stat = self.stat(process.pid)
        return stat is not None and stat.identity == process and not stat.ended

    def pid_inside(self, pid: int) -> int:
        """The number that a process has in its own pid namespace (NSpid, proc_pid_status(5)); 0 when there is none."""
        return int((self._status(pid, "NSpid").split() or ["0"])[-1])

    def environ(self, pid: int, *names: str) -> Mapping[str, str]:
        """Those of these variables that the process was started with; empty when its environment may not be read. The
        first of two of one name counts, as for getenv(3)."""
        content = b"\0" + (self._read(f"{pid}/environ", most=_LONGEST_ENVIRONMENT) or b"")
        found = {}
        for name in names:
            mark = b"\0%b=" % name.encode()
            if (at := content.find(mark)) >= 0:
                rest = content[at + len(mark) : at + _LONGEST_VARIABLE]
                found[name] = rest.partition(b"\0")[0].decode(errors="replace")
        return found

    def capabilities(self, pid: int) -> int:
        """The effective capabilities as a bit mask (capabilities(7)); 0 when there is no such process."""
        return int(self._status(pid, "CapEff") or "0", 16)

    def in_first_pid_namespace(self, pid: int) -> bool:
        """Whether the process is in the machine's own pid namespace, whose inode number the kernel fixes."""
        try:
            return Path(f"{self._root}/{pid}/ns/pid").readlink() == Path("pid:[4026531836]")
        except OSError:
            return False

    def cgroup(self, pid: int) -> str:
        """The text of /proc/PID/cgroup; empty when there is no such process."""
        return (self._read(f"{pid}/cgroup") or b"").decode(errors="replace")

    def open_files(self, pid: int) -> frozenset[str] | None:
        """Paths behind its descriptors, as its own mount namespace names them; None when it does not let us look."""
        found = set()
        names = self._list(f"{pid}/fd")
        if not names and self.stat(pid):
            return None
        for name in names:
            try:
                found.add(os.readlink(f"{self._root}/{pid}/fd/{name}"))  # noqa: PTH115 (a Path costs more than the call)
            except OSError:  # closed meanwhile
                continue
        return frozenset(found)

    def descriptor(self, pid: int, number: int) -> str:
        """The path by which a file that a process has open can be looked at from here."""
        return f"{self._root}/{pid}/fd/{number}"

    def children(self, pid: int) -> frozenset[int]:
        """Pids of its children, whichever of its threads started them."""
        tasks = (self._read(f"{pid}/task/{task}/children") or b"" for task in self._list(f"{pid}/task"))
        return frozenset(int(child) for text in tasks for child in text.split())

    def family(self, roots: Iterable[ProcessId]) -> frozenset[ProcessId]:
        """Those of the roots that live, and all descendants that can be reached from them now."""
        found: set[ProcessId] = set()
        todo = [root for root in roots if self.alive(root)]
        while todo:
            process = todo.pop()
            if process in found:
                continue
            found.add(process)
            stats = (self.stat(child) for child in self.children(process.pid))
            todo += [stat.identity for stat in stats if stat and not stat.ended]
        return frozenset(found)

    def pids(self) -> tuple[int, ...]:
        """Every process of the machine."""
        return tuple(int(name) for name in self._list("") if name.isdigit())

    def _status(self, pid: int, field: str) -> str:
        """One field of /proc/PID/status; empty when there is no such process or field."""
        for line in (self._read(f"{pid}/status") or b"").split(b"\n"):  # its name may have other ends of a line
            name, _, value = line.partition(b":")
            if name == field.encode():
                return value.decode().strip()
        return ""

    def _meminfo(self, field: bytes) -> int:
        for line in (self._read("meminfo") or b"").splitlines():
            if line.startswith(field):
                return int(line.split()[1]) * 1024
        return 0

    def _read(self, path: str, *, most: int = _LARGEST) -> bytes | None:
        """The file, or its first `most` bytes. Without the layers of `open`, which cost more than these files: they are
        read for every process of a job."""
        try:
            descriptor = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # ended meanwhile (ENOENT), or not ours to read (EACCES)
            return None
        try:
            content = b""
            while more := os.read(descriptor, min(max(_CHUNK, len(content)), most - len(content))):
                content += more
        except OSError:  # ended meanwhile (ESRCH)
            return None
        finally:
            os.close(descriptor)
        return content

    def _list(self, path: str) -> list[str]:
        try:
            return os.listdir(f"{self._root}/{path}")  # noqa: PTH208
        except OSError:
            return []
