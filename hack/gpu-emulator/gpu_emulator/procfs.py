"""What the daemon reads about its peers under /proc. All of it tolerates processes that end meanwhile."""

import socket
import struct
from pathlib import Path


def peer_of(peer: socket.socket) -> tuple[int, int]:
    """Process id as this process' namespace sees it, and user id, of the other end of a unix socket."""
    pid, uid, _gid = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid


def _status_numbers(path: Path, key: str) -> list[int]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    for line in lines:
        name, _, value = line.partition(":")
        if name == key:
            return [int(word) for word in value.split()]
    return []


def thread_in_our_namespace(pid: int, tid: int) -> int:
    """Translates a thread id that a process knows of itself, which may live in a pid namespace of its own."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:
        return tid
    for task in tasks:
        if _status_numbers(task / "status", "NSpid")[-1:] == [tid]:
            return int(task.name)
    return tid


def namespace_pids(pid: int) -> list[int]:
    """Process id in every pid namespace from ours down to its own."""
    return _status_numbers(Path(f"/proc/{pid}/status"), "NSpid")


def start_time(pid: int) -> int:
    """Clock ticks after boot at which the process began, 0 when it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])


def process_name(pid: int) -> str | None:
    """The program as NVML names it; None when there is no such process."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return None
    return arguments[0].decode(errors="replace")
