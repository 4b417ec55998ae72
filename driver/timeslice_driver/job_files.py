"""The file by which the processes of one launch belong together for the driver, so that they may share device memory.

`cuda-checkpoint --launch-job` makes it in memory, and names it in the environment by a path that is true for each of
them alone, `/proc/self/fd/N`. Whoever acts on one of them needs it as well (cuda-checkpoint issue 43). A process may
name anything there, and who acts on it may do more than it may: so only a file of its own descriptors that has no name
in any file system is taken for a job file.
"""

from __future__ import annotations

import errno
import os
import re
from stat import S_ISREG
from typing import Final

from timeslice_driver.processes import ProcFs

VARIABLE: Final = "CUDA_CHECKPOINT_JOB_FILE"
_OWN: Final = re.compile("/proc/self/fd/([0-9]{1,9})")


class JobFiles:
    """Looks at processes. Blocks for some microseconds."""

    def __init__(self, procfs: ProcFs) -> None:
        self._procfs = procfs

    def key(self, pid: int) -> str:
        """The same for all processes that have one file, and no other's; empty for a process that has none."""
        try:
            return _key(os.stat(self._path(pid)))  # noqa: PTH116 - the path may be empty, which is no file
        except OSError:
            return ""

    def opened(self, pid: int, key: str) -> int:
        """A descriptor of the file, which the caller closes.

        Raises:
            OSError: the process has ended, or has another file by now.
        """
        seen = os.open(self._path(pid), os.O_PATH | os.O_CLOEXEC)  # which does nothing to what is there
        try:
            if not key or _key(os.fstat(seen)) != key:
                raise OSError(errno.ESTALE, f"process {pid} has another job file by now")
            return os.open(f"/proc/self/fd/{seen}", os.O_RDWR | os.O_CLOEXEC)
        finally:
            os.close(seen)

    def _path(self, pid: int) -> str:
        own = _OWN.fullmatch(self._procfs.environ(pid, VARIABLE).get(VARIABLE, ""))
        return self._procfs.descriptor(pid, int(own[1])) if own else ""


def _key(status: os.stat_result) -> str:
    nameless = S_ISREG(status.st_mode) and status.st_nlink == 0
    return f"{status.st_dev}:{status.st_ino}" if nameless else ""
