"""Unix sockets of a plugin: their names, and the files that dead processes have left."""

from __future__ import annotations

import errno
import socket
import stat
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

_LONGEST = 107  # bytes of a path in sockaddr_un, without the end


class SocketInUseError(Exception):
    """Another process listens at the path, or something that is no socket is there."""


@dataclass(frozen=True)
class Sockets:
    """Where an instance of a plugin listens.

    With the UID of the pod that it runs in, two instances can be there at once, as in a rolling update; without, they
    have the names that drivers always had. kubelet looks for registration sockets; the service's is told to it.
    """

    registration: Path
    service: Path

    @classmethod
    def of(cls, driver: str, *, registry: Path, data: Path, pod_uid: str = "") -> Sockets:
        """The names of the Go library, shortened in its way where a path would be too long for a unix socket.

        Raises:
            ValueError: they are too long even so: the folders' paths are.
        """
        if not pod_uid:
            return cls(_fitting(registry, [f"{driver}-reg.sock"]), _fitting(data, ["dra.sock"]))
        short, shortest = _hash(pod_uid, 8), _hash(f"{driver}\0{pod_uid}", 16)
        registrations = [f"{driver}-{pod_uid}-reg.sock", f"{driver}-{short}-reg.sock", f"dra-{shortest}-reg.sock"]
        services = [f"dra-{part}.sock" for part in (pod_uid, short, _hash(pod_uid, 6))]
        return cls(_fitting(registry, registrations), _fitting(data, services))

    def relatives(self, driver: str) -> Iterator[Path]:
        """Sockets that other instances of the driver may have left, and those of this one."""
        yield from self.registration.parent.glob(f"{driver}-*reg.sock")
        yield from self.service.parent.glob("dra*.sock")
        if not self.registration.name.startswith(driver):
            yield self.registration


def remove_dead(paths: Iterable[Path]) -> None:
    """Removes those sockets that nobody listens at. Files of another kind stay."""
    for path in paths:
        if _is_socket(path) and not alive(path):
            path.unlink(missing_ok=True)


def demand_free(path: Path) -> None:
    """Raises SocketInUseError if there is anything at the path."""
    if path.exists() or path.is_symlink():
        raise SocketInUseError(f"{path} is used by another process, or is no socket")


def alive(path: Path) -> bool:
    """Whether a process listens at the path. When in doubt it does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        try:
            client.connect(str(path))
        except OSError as error:
            return error.errno not in (errno.ECONNREFUSED, errno.ENOENT)
    return True


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _fitting(folder: Path, names: list[str]) -> Path:
    for name in names:
        if len(bytes(folder / name)) <= _LONGEST:
            return folder / name
    raise ValueError(f"{folder / names[-1]} is too long for a unix socket: at most {_LONGEST} bytes")


def _hash(text: str, length: int) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()[:length]).rstrip(b"=").decode()
