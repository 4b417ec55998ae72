"""Control groups of a cluster: they hold every process of it, also those that nobody has a record of."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_cluster.errors import ClusterError

_EMPTY_LIMIT_S = 20.0
_CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")  # a new v1 cpuset is empty, and nothing can run in it


@dataclass(frozen=True)
class Hierarchy:
    """A mounted cgroup file system. ``controllers`` of the second version are those of its root."""

    mount: Path
    controllers: frozenset[str]
    unified: bool


def parse_mounts(text: str) -> list[Hierarchy]:
    """The hierarchies in the format of /proc/self/mounts."""
    found = []
    for line in text.splitlines():
        _, mount, kind, options = line.split()[:4]
        if kind == "cgroup":
            found.append(Hierarchy(Path(mount), frozenset(options.split(",")), unified=False))
        elif kind == "cgroup2":
            found.append(Hierarchy(Path(mount), frozenset(), unified=True))
    return found


def hierarchies() -> list[Hierarchy]:
    """All of this machine. ClusterError when there are none."""
    found = parse_mounts(Path("/proc/self/mounts").read_text())
    if not found:
        raise ClusterError("no cgroup file system is mounted at /sys/fs/cgroup")
    return found


def membership(found: Sequence[Hierarchy]) -> Hierarchy:
    """The hierarchy by which we tell what belongs to the cluster: one that the kubelet moves no pod out of."""
    return next((entry for entry in found if "pids" in entry.controllers), found[0])


class Groups:
    """One group of the cluster, below it one for the control plane and one for each worker."""

    def __init__(self, name: str, found: Sequence[Hierarchy] | None = None) -> None:
        self._name = name
        self._hierarchies = list(found) if found is not None else hierarchies()
        self._home = membership(self._hierarchies).mount / name

    def create(self, part: str, *, for_pods: bool = False) -> None:
        """Makes ``<cluster>/<part>``, and ``<part>/system`` in it; those ``for_pods`` in every hierarchy."""
        for hierarchy in self._hierarchies if for_pods else [membership(self._hierarchies)]:
            folder = hierarchy.mount
            for step in (self._name, part):
                if hierarchy.unified:
                    _delegate(folder)
                folder = folder / step
                folder.mkdir(exist_ok=True)
                _inherit_cpuset(folder)
            if for_pods and hierarchy.unified:
                _delegate(folder)
        (self._home / part / "system").mkdir(exist_ok=True)

    def home(self, part: str) -> Path:
        """The folder of the group that the part's own programs are started in."""
        return self._home / part / "system"

    def kill(self, part: str = "") -> None:
        """SIGKILL to everything in the part, or the whole cluster, until nothing is left."""
        deadline = time.monotonic() + _EMPTY_LIMIT_S
        while pids := set(_processes(self._home / part)):
            if time.monotonic() > deadline:
                raise ClusterError(f"processes survive SIGKILL: {sorted(pids)}")
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)  # a group tells of its emptiness by no event in the first version

    def remove(self, part: str = "") -> None:
        """Removes the groups, which hold no process any more."""
        deadline = time.monotonic() + _EMPTY_LIMIT_S
        for hierarchy in self._hierarchies:
            while not _remove_tree(hierarchy.mount / self._name / part):
                if time.monotonic() > deadline:
                    raise ClusterError(f"{hierarchy.mount / self._name / part} cannot be removed")
                time.sleep(0.05)

    def exists(self) -> bool:
        return any((hierarchy.mount / self._name).exists() for hierarchy in self._hierarchies)


def _delegate(folder: Path) -> None:
    """Lets the children of a v2 group have all its controllers."""
    wanted = (folder / "cgroup.controllers").read_text().split()
    for controller in wanted:
        with contextlib.suppress(OSError):  # some cannot be had below a group with processes, and are not needed
            (folder / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(folder: Path) -> None:
    for name in _CPUSET_FILES:
        own, parent = folder / name, folder.parent / name
        if own.exists() and parent.exists() and not own.read_text().strip():
            own.write_text(parent.read_text())


def _processes(group: Path) -> Iterator[int]:
    for folder in (group, *_below(group)):
        with contextlib.suppress(OSError):  # it went away meanwhile
            yield from map(int, (folder / "cgroup.procs").read_text().split())


def _below(group: Path) -> list[Path]:
    return [Path(folder) / name for folder, names, _ in os.walk(group, topdown=False) for name in names]


def _remove_tree(group: Path) -> bool:
    """True when nothing is left. A group is busy for a moment after its last process has died."""
    for folder in (*_below(group), group):
        with contextlib.suppress(OSError):
            folder.rmdir()
    return not group.exists()
