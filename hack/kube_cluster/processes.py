"""Starts programs that outlive us, remembers them by pid and start time, and ends only those."""

import contextlib
import os
import select
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kube_cluster.errors import ClusterError

_START_LIMIT_S = 30.0
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Identity:
    """Names one process of one boot: a pid alone is given to others later. ``started`` in ticks since the boot."""

    pid: int
    started: int
    boot_id: str

    @classmethod
    def parse(cls, text: str) -> "Identity | None":
        """From a record; None for one that was cut off."""
        parts = text.split()
        if len(parts) != 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
            return None
        return cls(int(parts[0]), int(parts[1]), parts[2])

    def is_alive(self) -> bool:
        """False for a zombie, too."""
        if self.boot_id != _BOOT_ID.read_text().strip():
            return False
        return start_time(self.pid) == self.started


def start_time(pid: int) -> int | None:
    """Of a process that runs, in clock ticks since the boot; None when there is none, or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold anything; fields[0] is the third of proc(5)
    return None if fields[0] in "ZX" else int(fields[19])


@dataclass(frozen=True)
class Program:
    """What to start. ``cgroup`` is the folder of the cgroup it, and what it starts, belong to.

    One that ``announces`` prints a line when it is ready, and closes its standard output then.
    """

    name: str
    command: Sequence[str]
    cgroup: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    announces: bool = False


# The process writes its own record before it becomes the program: it is never without one, whenever we are killed.
_LAUNCH = """
set -e
echo $$ > {cgroup}/cgroup.procs
read -r line < /proc/$$/stat
set -- ${{line##*) }}
echo "$$ ${{20}} {boot_id}" > {record}.new
mv {record}.new {record}
exec 2>> {log} < /dev/null {output}
exec {command}
"""


class Ledger:
    """The programs of a cluster: a record and a log for each."""

    def __init__(self, records: Path, logs: Path) -> None:
        self._records = records
        self._logs = logs

    def log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def tail(self, name: str, lines: int = 30) -> str:
        """The end of its log."""
        with contextlib.suppress(FileNotFoundError):
            return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        return "(no log)"

    def names(self) -> list[str]:
        """Of all programs that were started."""
        return sorted(record.name for record in self._records.glob("*") if record.suffix != ".new")

    def identity(self, name: str) -> Identity | None:
        try:
            return Identity.parse((self._records / name).read_text())
        except FileNotFoundError:
            return None

    def is_alive(self, name: str) -> bool:
        identity = self.identity(name)
        return identity is not None and identity.is_alive()

    def start(self, program: Program) -> None:
        """Returns when the program runs, or is ready when it announces. ClusterError when it did not get so far."""
        if self.is_alive(program.name):
            raise ClusterError(f"{program.name} runs already")
        script = _LAUNCH.format(
            cgroup=shlex.quote(str(program.cgroup)),
            boot_id=_BOOT_ID.read_text().strip(),
            record=shlex.quote(str(self._records / program.name)),
            log=shlex.quote(str(self.log(program.name))),
            output="" if program.announces else ">&2",
            command=shlex.join(program.command),
        )
        try:
            done = subprocess.run(
                ["setsid", "--fork", "sh", "-c", script],
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "HOME": "/root", **program.environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_START_LIMIT_S,
                check=False,
            )
        except subprocess.TimeoutExpired as late:
            raise ClusterError(f"{program.name} is not ready after {_START_LIMIT_S:.0f} s") from late
        said = done.stdout.strip()
        if done.returncode != 0 or (program.announces and said != "ready") or not self.is_alive(program.name):
            raise ClusterError(f"{program.name} did not start: {said}\n{self.tail(program.name)}")

    def require(self, *names: str) -> None:
        """ClusterError with the end of its log for a program that has ended."""
        for name in names:
            if not self.is_alive(name):
                raise ClusterError(f"{name} has ended. The end of {self.log(name)}:\n{self.tail(name)}")

    def end(self, name: str, *, patience_s: float = 10.0) -> None:
        """SIGTERM, and SIGKILL when that is not enough; forgets the program. Does nothing when it has ended before."""
        identity = self.identity(name)
        if identity is not None:
            end_process(identity, patience_s=patience_s)
        (self._records / name).unlink(missing_ok=True)

    def kill(self, name: str) -> None:
        """SIGKILL."""
        self.end(name, patience_s=0)


def end_process(identity: Identity, *, patience_s: float) -> None:
    """Ends exactly that process. ClusterError when it survives SIGKILL for 10 s."""
    try:
        handle = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    try:
        if not identity.is_alive():  # checked after the handle is ours: the pid cannot change hands any more
            return
        for number, limit in ((signal.SIGTERM, patience_s), (signal.SIGKILL, 10.0)):
            if limit <= 0:
                continue
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(handle, number)
            if select.select([handle], [], [], limit)[0]:
                return
        raise ClusterError(f"process {identity.pid} survives SIGKILL")
    finally:
        os.close(handle)
