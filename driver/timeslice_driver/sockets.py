"""The node's address and its state directory: each for one node at a time."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from pathlib import Path
from typing import Final

import grpc.aio
from timeslice_api.errors import ConfigError
from timeslice_api.names import checked_socket_path

log = logging.getLogger(__name__)

_TRY_AGAIN_S: Final = 0.1


class FileLock:
    """flock(2) on a file, from `take` to `release`; the kernel drops it when the process dies."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def take(self, what: str) -> None:
        """Raises ConfigError, which names `what` is in use, when another node has it."""
        if not self._try():
            raise ConfigError(
                f"{what} is in use by another node",
                hint="end that one, or give this one another socket and state directory",
            )

    def _try(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ConfigError(f"cannot make {self._path}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        self._descriptor = descriptor
        return True

    async def wait(self, what: str) -> None:
        """Takes it as soon as it is free, such as when the other half of a rolling update has ended.

        Raises:
            ConfigError: the file cannot be made.
        """
        waiting = False
        while not self._try():
            if not waiting:
                log.info("waiting for another node to end: it has the %s", what)
            waiting = True
            await asyncio.sleep(_TRY_AGAIN_S)  # flock(2) has no way to wait that can be given up

    def release(self) -> None:
        """Lets the next one in. The file stays, or two could hold the lock. Safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def listen(server: grpc.aio.Server, path: Path, *, mode: int) -> None:
    """Has a server listen on a unix socket, which nobody but those whom `mode` permits can reach at any moment.

    Raises:
        InvalidRequest: the path is longer than a socket's may be.
        ConfigError: the socket cannot be made.
    """
    checked_socket_path(str(path), "socket")
    before = os.umask(0o777 & ~mode)
    try:
        server.add_insecure_port(f"unix:{path}")
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {path}: does its folder exist?") from error
    finally:
        os.umask(before)
