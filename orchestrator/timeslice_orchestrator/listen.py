"""Addresses to listen on, and the locks that keep a second orchestrator away from them."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import grpc.aio
from timeslice_api.errors import ConfigError
from timeslice_api.names import checked_socket_path

_UNIX = "unix:"
_OWNER_ONLY = 0o177  # umask


class FileLock:
    """An advisory lock on a file, held from `take` to `release`; the kernel drops it when the process dies."""

    def __init__(self, path: Path, owner_of: str) -> None:
        self._path = path
        self._owner_of = owner_of
        self._fd = -1

    def take(self) -> None:
        """Raises ConfigError when another process, or another orchestrator of this one, has it."""
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.write(fd, f"{os.getpid()}\n".encode())
        except BlockingIOError:
            pid = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            message = f"{self._owner_of} is in use by another orchestrator (process {pid})"
            hint = "stop that one, or give this one a state directory and an address of its own"
            raise ConfigError(message, hint=hint) from None
        except OSError:
            os.close(fd)
            raise
        self._fd = fd

    def release(self) -> None:
        """Lets the next one in. The file stays: removing it would let two hold "the" lock."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Listener:
    """One address to listen on.

    Args:
        address: `unix:///path`, `unix:path`, or `host:port`.

    Raises:
        ConfigError: the address has no such form, or its path is longer than a socket's may be (InvalidRequest).
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self._path: Path | None = None
        if address.startswith(_UNIX):
            self._path = _socket_path(address)
            self._lock = FileLock(self._path.with_name(f"{self._path.name}.lock"), f"socket {self._path}")
        elif not _is_host_and_port(address):
            raise ConfigError(f"address {address!r} is neither unix:///path nor host:port")

    def bind(self, server: grpc.aio.Server) -> None:
        """Adds the address to a server; after it `address` has the port that was chosen.

        Raises:
            ConfigError: it is in use, or cannot be listened on; the message says which.
        """
        if self._path is None:
            self._bind_port(server)
        else:
            self._bind_socket(server, self._path)

    def release(self) -> None:
        """After the server's stop: leaves the address to the next one."""
        if self._path is not None:
            self._lock.release()

    def _bind_port(self, server: grpc.aio.Server) -> None:
        host, _, _ = self.address.rpartition(":")
        self.address = f"{host}:{_added(server, self.address)}"

    def _bind_socket(self, server: grpc.aio.Server, path: Path) -> None:
        # gRPC would take the socket away from a living server without a word, so a lock beside it comes first.
        try:
            self._lock.take()
        except OSError as error:
            raise ConfigError(f"cannot listen on {self.address}: {error}") from error
        before = os.umask(_OWNER_ONLY)  # the socket is never open to others, not even for a moment
        try:
            _added(server, f"{_UNIX}{path}")
        except ConfigError:
            self._lock.release()
            raise
        finally:
            os.umask(before)


def _added(server: grpc.aio.Server, address: str) -> int:
    try:
        return server.add_insecure_port(address)
    except RuntimeError as error:
        message = f"cannot listen on {address}: it is in use, or not of this machine"
        raise ConfigError(message, hint="end the program that has it, or listen on another address") from error


def _socket_path(address: str) -> Path:
    path = address.removeprefix(_UNIX)
    if path.startswith("//"):
        path = path[2:]
        if not path.startswith("/"):
            raise ConfigError(f"address {address!r} is not of the form unix:///path")
    if not path:
        raise ConfigError(f"address {address!r} has no path")
    return Path(checked_socket_path(path, "listen"))


def _is_host_and_port(address: str) -> bool:
    host, _, port = address.rpartition(":")
    return bool(host) and port.isascii() and port.isdigit() and int(port) < 65536
