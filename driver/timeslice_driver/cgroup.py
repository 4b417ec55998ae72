"""What control groups say about a process: its pod, how much memory it may still take, whether it is frozen.

Text in, values out, for every layout that kubelets and container runtimes make (cgroup v1, v2 and both at once; the
systemd and the cgroupfs driver). Formats: cgroups(7), Documentation/admin-guide/cgroup-v2.rst of Linux, and
pkg/kubelet/cm/pod_container_manager_linux.go of Kubernetes.
"""

from __future__ import annotations

import os
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timeslice_api.whole_numbers import whole_number

# A path component made by a kubelet for a pod. A static pod's UID is the MD5 of its manifest, without dashes.
_POD = re.compile(
    r"(?:[a-z0-9-]*kubepods-(?:burstable-|besteffort-)?)?"
    r"pod(?P<uid>[0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})"
    r"(?:\.slice)?"
)
_GREATEST = (1 << 64) - 1  # of the kernel's numbers
_NO_LIMIT = 1 << 60  # cgroup v1 has no word for "unlimited": it shows the greatest page-aligned number


class PodsDisagreeError(ValueError):
    """The hierarchies of one process name different pods."""


@dataclass(frozen=True)
class Membership:
    """The cgroups of a process: one path per v1 controller, one in the unified hierarchy; None where there is none.

    Paths begin where the reader's cgroup namespace does: outside of it they begin with `/..`.
    """

    controllers: dict[str, str]
    unified: str | None

    @property
    def memory(self) -> str | None:
        """Where its memory is counted under v1."""
        return self.controllers.get("memory")

    @property
    def freezer(self) -> str | None:
        """Where it may be frozen under v1."""
        return self.controllers.get("freezer")


def parse(text: str) -> Membership:
    """The lines of /proc/PID/cgroup, `hierarchy:controllers:path`. Lines of any other form are passed over."""
    controllers: dict[str, str] = {}
    unified = None
    for line in text.split("\n"):  # no other end of a line: a cgroup's name may have those
        number, first, rest = line.partition(":")
        names, second, path = rest.partition(":")
        if not (first and second and path.startswith("/")):
            continue
        if number == "0" and not names:
            unified = path
        controllers |= {name: path for name in names.split(",") if name}
    return Membership(controllers, unified)


def pod_uids(text: str) -> tuple[str, ...]:
    """UIDs of the pods that a process is in, the outermost first (nested clusters have several), with dashes.

    A container runtime's monitor process is in the pod's cgroup but not of the workload: it has none.

    Raises:
        PodsDisagreeError: two hierarchies name different pods.
    """
    membership = parse(text)
    named = ("memory", "pids", "devices", "name=systemd")
    paths = [membership.controllers[name] for name in named if name in membership.controllers]
    paths += [membership.unified] if membership.unified else []
    found = {uids for uids in map(_pods_of_path, paths) if uids}
    if len(found) > 1:
        raise PodsDisagreeError(" and ".join(sorted("/".join(uids) for uids in found)))
    return found.pop() if found else ()


def _pods_of_path(path: str) -> tuple[str, ...]:
    components = re.split("[/:]", path)  # a colon separates them where the kubelet's and the runtime's drivers differ
    if not any("kubepods" in component for component in components):
        return ()
    if any(map(monitors, components)):
        return ()
    return tuple(uid for component in components if (uid := pod_of_component(component)))


def pod_of_component(component: str) -> str:
    """The UID in a path component that a kubelet has made for a pod; empty when it is none."""
    match = _POD.fullmatch(component)
    return match["uid"].replace("_", "-") if match else ""


def monitors(component: str) -> bool:
    """A container runtime's monitor is there, which is in the pod's cgroup but not of the workload."""
    return component.startswith("crio-conmon-")


@dataclass(frozen=True)
class HeadRoom:
    """What a cgroup with a memory limit may still take (bytes); file cache that can be dropped counts as free."""

    path: str
    limit: int
    used: int

    @property
    def free(self) -> int:
        """Bytes until its processes are killed."""
        return max(0, self.limit - self.used)


class CgroupFs:
    """The mounted cgroup hierarchies: unified at `root`, or v1 ones below it, or both.

    Args:
        root: /sys/fs/cgroup of the machine, whole; tests give a tree of their own.
        pid: of the reader, as the hierarchy shows it: where it is, its cgroup namespace begins.
    """

    def __init__(self, root: Path = Path("/sys/fs/cgroup"), pid: int | None = None) -> None:
        self._root = root
        self._pid = pid or os.getpid()
        self._begins: dict[Path, Path | None] = {}  # by hierarchy

    @property
    def version(self) -> str:
        """`v2`, `v1`, `hybrid` or `none`."""
        if os.path.exists(self._root / "cgroup.controllers"):
            return "v2"
        v1 = os.path.isdir(self._root / "memory")
        v2 = os.path.isdir(self._root / "unified")
        return "hybrid" if v1 and v2 else "v1" if v1 else "none"

    def head_rooms(self, text: str) -> tuple[HeadRoom, ...]:
        """Every limit that binds a process with this text in /proc/PID/cgroup: its own cgroup's and its ancestors'."""
        membership = parse(text)
        if self.version == "v2":
            found = [_head_room_v2(folder) for folder in self._upwards(self._root, membership.unified)]
        else:
            found = [_head_room_v1(folder) for folder in self._upwards(self._root / "memory", membership.memory)]
        return tuple(room for room in found if room)

    def frozen(self, text: str) -> str | None:
        """The cgroup, own or ancestor, that is frozen or being frozen; None when none is."""
        membership = parse(text)
        unified = self._root if self.version == "v2" else self._root / "unified"
        for folder in self._upwards(unified, membership.unified):
            if _read(folder / "cgroup.freeze") == "1" or "frozen 1" in _read(folder / "cgroup.events"):
                return str(folder)
        for folder in self._upwards(self._root / "freezer", membership.freezer):
            if _read(folder / "freezer.state") in {"FROZEN", "FREEZING"}:
                return str(folder)
        return None

    def _upwards(self, mount: Path, path: str | None) -> Iterator[Path]:
        """The folder of a cgroup and its ancestors, the mount's own last; those that cannot be seen are left out."""
        if path is None or not os.path.isdir(mount):
            return
        folder = self._located(mount, path)
        while folder != mount:
            if os.path.isdir(folder):
                yield folder
            folder = folder.parent
        yield mount

    def _located(self, mount: Path, path: str) -> Path:
        """Where a path of /proc/PID/cgroup is below the mount, and never above it."""
        parts = [part for part in path.split("/") if part not in ("", ".")]
        begin = self._begin(mount) if ".." in parts else mount
        below = list((begin or mount).relative_to(mount).parts)
        for part in parts:
            if part != "..":
                below.append(part)
            elif below:
                below.pop()
        return mount.joinpath(*below)

    def _begin(self, mount: Path) -> Path | None:
        """The reader's own cgroup. A container without privileges has a cgroup namespace that begins there."""
        if mount not in self._begins:
            own = str(self._pid)
            folders = (Path(folder) for folder, _ in walk(mount))
            found = (folder for folder in folders if own in _read(folder / "cgroup.procs").split())
            self._begins[mount] = next(found, None)
        return self._begins[mount]


def walk(top: Path) -> Iterator[tuple[str, list[str]]]:
    """A folder and all below it, each with the names of the folders in it; the ones nearer to the top come first.
    `os.walk` ends in a RecursionError where somebody has nested a thousand of them."""
    left = deque([str(top)])  # a Path costs more than the look
    while left:
        folder = left.popleft()
        names = folders_in(folder)
        yield folder, names
        left += [f"{folder}/{name}" for name in names]


def folders_in(folder: str | Path) -> list[str]:
    """The names of the folders in it; none when it is gone."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:  # gone meanwhile, or its path is too long
        return []


def _head_room_v2(folder: Path) -> HeadRoom | None:
    limit, used = _number(folder / "memory.max"), _number(folder / "memory.current")
    if limit is None or used is None:  # "max", or the root, which has neither file
        return None
    return HeadRoom(str(folder), limit, used - _stat(folder, "inactive_file"))


def _head_room_v1(folder: Path) -> HeadRoom | None:
    limit, used = _number(folder / "memory.limit_in_bytes"), _number(folder / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _NO_LIMIT:
        return None
    return HeadRoom(str(folder), limit, used - _stat(folder, "total_inactive_file"))


def _stat(folder: Path, field: str) -> int:
    for line in _read(folder / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == field:
            return whole_number(value, _GREATEST) or 0
    return 0


def _number(file: Path) -> int | None:
    return whole_number(_read(file), _GREATEST)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except (OSError, ValueError):  # a path with a NUL is none either
        return ""
