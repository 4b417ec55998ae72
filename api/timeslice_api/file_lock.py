"""A lock that one process at a time has, and that the kernel takes back when the process dies: flock(2) on a file.

It works on a file system that machines share, too, where that has locks (NFS from version 4 on; flock(2), nfs(5)).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from timeslice_api.bounded_files import content_of
from timeslice_api.errors import ConfigError


class FileLock:
    """Held from `take` or `wait` to `release`.

    Args:
        path: of the file, which holds the owner's process id and host. It is never removed: two could hold "the" lock.
        what: it stands for, in words.
        by: what its owners are, in words.
    """

    def __init__(self, path: Path, what: str, *, by: str) -> None:
        self._path, self._what, self._by = path, what, by
        self._fd = -1

    def take(self) -> None:
        """Raises ConfigError when somebody has it, in this process or another one, or when the file cannot be made."""
        if not self._try():
            raise ConfigError(
                f"{self._what} is in use by another {self._by} ({self._owner()})",
                hint="end that one, or give this one a state directory and an address of its own",
            )

    async def wait(self, told: Callable[[str], None]) -> None:
        """Takes it as soon as it is free. Before it waits, it tells who has it, such as "process 4711 on host-1".

        Raises:
            ConfigError: the file cannot be made, or the file system has no locks.
        """
        if self._try():
            return
        told(self._owner())
        waiting = _Waiting(self._open())
        try:
            self._keep(await waiting.fd)
        except OSError as error:
            raise self._unusable(error) from error

    def release(self) -> None:
        """Lets the next one in. Safe to repeat."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _try(self) -> bool:
        if self._fd >= 0:
            return True
        fd = self._open()
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        except OSError as error:
            os.close(fd)
            raise self._unusable(error) from error
        self._keep(fd)
        return True

    def _open(self) -> int:
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unusable(error) from error

    def _keep(self, fd: int) -> None:
        self._fd = fd
        with contextlib.suppress(OSError):  # a full disk: the name is for people
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()} {socket.gethostname()}\n".encode(), 0)

    def _owner(self) -> str:
        try:
            pid, _, host = content_of(self._path, 1 << 10).decode().strip().partition(" ")
        except (OSError, ValueError):
            pid = host = ""
        return f"process {pid or 'unknown'}" + (f" on {host}" if host else "")

    def _unusable(self, error: OSError) -> ConfigError:
        return ConfigError(f"cannot lock {self._path}: {error.strerror}")


class _Waiting:
    """A thread that blocks in flock(2), which nothing can interrupt. When nobody waits for `fd` any more, it gives the
    lock back as soon as it gets it; it does not keep the process from ending."""

    def __init__(self, fd: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.fd: asyncio.Future[int] = self._loop.create_future()
        threading.Thread(target=self._block, args=(fd,), name="waits for a lock", daemon=True).start()

    def _block(self, fd: int) -> None:
        failure: OSError | None = None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as error:
            failure = error
        try:
            self._loop.call_soon_threadsafe(self._hand_over, fd, failure)
        except RuntimeError:  # the loop is closed
            os.close(fd)

    def _hand_over(self, fd: int, failure: OSError | None) -> None:
        if failure is None and not self.fd.done():
            self.fd.set_result(fd)
            return
        os.close(fd)
        if failure is not None and not self.fd.done():
            self.fd.set_exception(failure)
