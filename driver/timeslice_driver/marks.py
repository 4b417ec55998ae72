"""The marks that processes carry in their environment: the job and group that they were started for."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from timeslice_api.names import ENV_GROUP_ID, ENV_JOB_ID, ENV_NODE_SOCKET

from timeslice_driver.parts import Member
from timeslice_driver.processes import ProcFs


@dataclass(frozen=True)
class Mark:
    """What an environment names; `group_id` may be empty."""

    job_id: str
    group_id: str

    def fits(self, member: Member) -> bool:
        """Whether it names the member's job, and no other group."""
        return self.job_id == member.job_id and self.group_id in ("", member.group_id)


class Marks:
    """Reads the marks that are meant for one node: several may run on a machine, each for jobs of its own.

    Args:
        socket: the node's; a process whose environment names another one, or none on purpose, is not for this node.
    """

    def __init__(self, procfs: ProcFs, socket: Path) -> None:
        self._procfs = procfs
        self._socket = socket

    def of(self, pid: int) -> Mark | None:
        """The mark of a process; None when it names no job, or another node."""
        environ = self._procfs.environ(pid, ENV_JOB_ID, ENV_GROUP_ID, ENV_NODE_SOCKET)
        job_id, socket = environ.get(ENV_JOB_ID, ""), environ.get(ENV_NODE_SOCKET)
        if not job_id or (socket is not None and not self._is_ours(socket)):
            return None
        return Mark(job_id, environ.get(ENV_GROUP_ID, ""))

    def _is_ours(self, socket: str) -> bool:
        path = Path(socket.removeprefix("unix://"))
        # A relative path is one of a folder that is not known here.
        return path == self._socket or (bool(socket) and not path.is_absolute())
