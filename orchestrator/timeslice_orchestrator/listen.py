"""Addresses to listen on, each for one orchestrator at a time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
from timeslice_api.addresses import is_host_and_port
from timeslice_api.errors import ConfigError
from timeslice_api.file_lock import FileLock
from timeslice_api.names import checked_socket_path
from timeslice_api.tls import TlsFiles, listens_by_tls, server_credentials

_log = logging.getLogger(__name__)

_UNIX = "unix:"
_OWNER_ONLY = 0o177  # umask
_DYING_S = 2.0  # in which the kernel closes the ports and lets go the locks of a process that has died
_TRY_AGAIN_S = 0.02


class Listener:
    """One address to listen on.

    Args:
        address: `unix:///path`, `unix:path`, or `host:port`.
        tls: the server's files; see timeslice_api.tls for which address uses them.

    Raises:
        ConfigError: the address has no such form, its path is longer than a socket's may be (InvalidRequest), others
            than this machine would reach it without TLS, or a certificate cannot be used.
    """

    def __init__(self, address: str, tls: TlsFiles | None = None) -> None:
        self.address = address
        self._credentials: grpc.ServerCredentials | None = None
        self._path: Path | None = None
        if address.startswith(_UNIX):
            self._path = _socket_path(address)
            self._lock = FileLock(
                self._path.with_name(f"{self._path.name}.lock"), f"socket {self._path}", by="orchestrator"
            )
        elif not is_host_and_port(address):
            raise ConfigError(f"address {address!r} is neither unix:///path nor host:port")
        elif listens_by_tls(address, files := tls or TlsFiles()):
            self._credentials = server_credentials(files)

    async def succeed(self, server: grpc.aio.Server) -> None:
        """Like `bind`, after an orchestrator that may just be dying: what it has is free in a moment."""
        deadline = asyncio.get_running_loop().time() + _DYING_S
        if self._path is not None:
            with contextlib.suppress(TimeoutError):  # it is another one's, as `bind` says
                async with asyncio.timeout_at(deadline):
                    await self._lock.wait(lambda _: None)
        while True:
            try:
                self.bind(server)
            except ConfigError:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
            else:
                return
            await asyncio.sleep(_TRY_AGAIN_S)  # nobody tells when a port is free

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
        if (credentials := self._credentials) is not None:
            port = _added(self.address, lambda: server.add_secure_port(self.address, credentials))
        else:
            _log.warning("WITHOUT TLS: %s is for this machine alone", self.address)
            port = _added(self.address, lambda: server.add_insecure_port(self.address))
        self.address = f"{host}:{port}"

    def _bind_socket(self, server: grpc.aio.Server, path: Path) -> None:
        # gRPC would take the socket away from a living server without a word, so a lock beside it comes first.
        self._lock.take()
        before = os.umask(_OWNER_ONLY)  # the socket is never open to others, not even for a moment
        try:
            address = f"{_UNIX}{path}"
            _added(address, lambda: server.add_insecure_port(address))
        except ConfigError:
            self._lock.release()
            raise
        finally:
            os.umask(before)


def _added(address: str, add: Callable[[], int]) -> int:
    try:
        return add()
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
