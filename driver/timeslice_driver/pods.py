"""Which processes pods have, container by container, as their control groups tell.

The kubelet makes a pod's cgroup before it has claims prepared for the pod, and removes it after they are unprepared. So
a folder that is not there means no processes, unless no pod's folder is visible at all: then /proc is asked instead.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from timeslice_driver.cgroup import PodsDisagreeError, folders_in, monitors, pod_of_component, pod_uids, walk
from timeslice_driver.processes import ProcFs

_HIERARCHIES: Final = ("", "memory", "pids", "devices", "cpu", "systemd", "unified")  # below the root; "" is v2
_WALK_PAUSE_S: Final = 0.1  # a walk costs about 10 microseconds per cgroup of the machine


@dataclass(frozen=True)
class _Place:
    """Where the containers of a pod are: folders below `folder` whose names start with `prefix`."""

    folder: Path
    prefix: str = ""

    def containers(self) -> Iterator[Path]:
        """Their folders, without those of container monitors, and the pod's own when processes may be right in it."""
        if not self.prefix:
            yield self.folder
        for name in folders_in(self.folder):
            if name.startswith(self.prefix) and not monitors(name):
                yield self.folder / name


class Pods:
    """Blocking, for one thread.

    Args:
        root: where the cgroup hierarchies are mounted, /sys/fs/cgroup.
    """

    def __init__(self, procfs: ProcFs, root: Path) -> None:
        self._procfs = procfs
        self._root = root
        self._places: dict[str, _Place] = {}
        self._walked_at = -_WALK_PAUSE_S

    def containers(self, uid: str) -> tuple[tuple[int, ...], ...]:
        """The pids in each container of a pod that has any."""
        place = self._place(uid)
        if place:
            found = [_pids(each, deep=each != place.folder) for each in place.containers()]
        else:
            found = [] if self._places else [*self._from_procfs(uid)]
        return tuple(pids for pids in found if pids)

    def _place(self, uid: str) -> _Place | None:
        known = self._places.get(uid)
        if known and os.path.isdir(known.folder):
            return known
        if time.monotonic() >= self._walked_at + _WALK_PAUSE_S:
            self._places = self._walk()
            self._walked_at = time.monotonic()
        return self._places.get(uid)

    def _walk(self) -> dict[str, _Place]:
        """The places of all pods, in the first hierarchy that has any. Of two folders with a pod's name the one nearer
        to the top counts: a pod may make folders of any name in its own."""
        for name in _HIERARCHIES:
            if not name and not os.path.exists(self._root / "cgroup.controllers"):
                continue
            found: dict[str, _Place] = {}
            for folder, below in walk(self._root / name):
                for each in below:
                    first, colon, _ = each.partition(":")
                    if uid := pod_of_component(first):
                        place = _Place(Path(folder), f"{first}:") if colon else _Place(Path(folder) / each)
                        found.setdefault(uid, place)
            if found:
                return found
        return {}

    def _from_procfs(self, uid: str) -> Iterator[tuple[int, ...]]:
        """One container for each cgroup that processes of the pod are in."""
        by_cgroup: dict[str, list[int]] = {}
        for pid in self._procfs.pids():
            text = self._procfs.cgroup(pid)
            try:
                if uid in pod_uids(text):
                    by_cgroup.setdefault(text, []).append(pid)
            except PodsDisagreeError:
                continue
        yield from map(tuple, by_cgroup.values())


def _pids(folder: Path, *, deep: bool) -> tuple[int, ...]:
    folders = (Path(each) for each, _ in walk(folder)) if deep else (folder,)
    return tuple(itertools.chain.from_iterable(map(_read_pids, folders)))


def _read_pids(folder: Path) -> tuple[int, ...]:
    try:
        return tuple(map(int, (folder / "cgroup.procs").read_text().split()))
    except OSError:  # gone meanwhile, or a threaded cgroup, whose processes its domain lists
        return ()
