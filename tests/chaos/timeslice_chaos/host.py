"""The memory that the cgroups of the machine allow, as the nodes see it."""

from __future__ import annotations

from pathlib import Path

_PLENTY = 1 << 40


class HostMemory:
    """A cgroup root of our own: its limit counts for every process, whatever the layout of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        if any(line.startswith("0::") for line in Path("/proc/self/cgroup").read_text().splitlines()):
            folder, (self._limit, used) = root, ("memory.max", "memory.current")
        else:
            folder, (self._limit, used) = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        folder.mkdir(parents=True)
        (root / "cgroup.controllers").touch()
        (folder / used).write_text("0")
        self._folder = folder
        self.limit(None)

    def limit(self, size: int | None) -> None:
        """From now on that many bytes; None: more than enough. A reader sees the old limit or the new one."""
        beside = self._folder / "new"
        beside.write_text(str(_PLENTY if size is None else size))
        beside.replace(self._folder / self._limit)
