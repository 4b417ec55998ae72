"""The connections between the ranks of one job: a star around rank 0, one JSON object a line, no polling.

Everything is on CPU and sockets, since the accelerators may be parked while ranks wait. A rank that dies closes its
connection, which wakes whoever waits for it; when its machine is gone, the kernel tells within half a minute.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import time
from pathlib import Path
from typing import Any, Final

from timeslice_api.errors import ConfigError, ConnectionLost, InvalidRequest
from timeslice_api.whole_numbers import PORTS, whole_number

from timeslice.rank_key import RankKey, StrangerError

RETRY_S: Final = 0.1  # while rank 0 does not listen yet
_LONGEST: Final = 1 << 20  # bytes of a message
_OWNER_ONLY: Final = 0o600
_PROBE_S: Final = 1.0
# Seconds, milliseconds for the last; names that Linux has.
_KEEPALIVE: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 25_000}


def listen(address: str) -> socket.socket:
    """Where rank 0 waits for the others. Raises ConnectionLost when the address cannot be used."""
    family, where = _parsed(address)
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            _remove_unused(str(where))
            os.fchmod(server.fileno(), _OWNER_ONLY)  # which the socket has from its first moment on
        server.bind(where)
        server.listen(1024)
    except OSError as error:
        server.close()
        raise ConnectionLost(f"rank 0 cannot listen at {address}: {error}") from error
    return server


def _remove_unused(path: str) -> None:
    """Removes the socket that a rank 0 left which was killed. Files of another kind, and sockets in use, stay: there
    `bind` fails."""
    if Path(path).is_socket():
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(_PROBE_S)
            try:
                probe.connect(path)
            except ConnectionRefusedError:
                Path(path).unlink(missing_ok=True)


def connect(address: str, within_s: float, *, hello: dict[str, Any], key: RankKey | None) -> Link:
    """A link to rank 0, which has let this one in. Rank 0 may start later than this one.

    Raises:
        ConnectionLost: not within so many seconds, or somebody else listens there.
        ConfigError: rank 0 takes this one for none of its job.
    """
    until = time.monotonic() + within_s
    while True:
        try:
            return _introduced(_dialled(address, until, key), hello, until)
        except (StrangerError, ssl.SSLError) as error:
            if not isinstance(error, ssl.SSLEOFError):
                message = f"who listens at {address} does not have the key of the ranks: {error}"
                raise ConnectionLost(message, hint="is it another program, or a rank with another file?") from error
            failure: Exception = error
        except (OSError, ConnectionLost) as error:
            failure = error
        if time.monotonic() >= until:
            message = f"rank 0 does not listen at {address}: {failure}"
            raise ConnectionLost(message, hint="did it start, and with the same address?") from failure
        time.sleep(RETRY_S)


def _dialled(address: str, until: float, key: RankKey | None) -> socket.socket:
    family, where = _parsed(address)
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.settimeout(max(RETRY_S, until - time.monotonic()))
        connection.connect(where)
        if key:
            connection = encrypted = key.wrapped(connection, accepted=False)
            encrypted.do_handshake()
            key.check(encrypted)
    except BaseException:
        connection.close()
        raise
    return connection


def _introduced(connection: socket.socket, hello: dict[str, Any], until: float) -> Link:
    link = Link(connection, "rank 0")
    try:
        link.send(**hello)
        answer = link.receive(max(RETRY_S, until - time.monotonic()))
    except BaseException:
        link.close()
        raise
    if "refused" in answer:
        link.close()
        raise ConfigError(str(answer["refused"]))
    return link


def _parsed(address: str) -> tuple[socket.AddressFamily, Any]:
    if "/" in address:
        return socket.AF_UNIX, address.removeprefix("unix://")
    host, _, digits = address.rpartition(":")
    port = whole_number(digits, PORTS)
    if not host or port is None:
        raise InvalidRequest(f"ranks address {address!r} is neither host:port nor a path")
    return socket.AF_INET, (host, port)


class Link:
    """One connection; `name` is the other side's, for messages."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for name, value in _KEEPALIVE.items():
                if hasattr(socket, name):
                    connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
        self._connection = connection
        self._lines = connection.makefile("rb")
        self.name = name

    def send(self, **message: Any) -> None:
        """Sends a message. Raises ConnectionLost when the other side is gone."""
        try:
            self._connection.sendall(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise ConnectionLost(f"{self.name} is gone: {error}", hint="see why it ended") from error

    def receive(self, timeout: float | None = None) -> dict[str, Any]:
        """The next message. Raises ConnectionLost when the other side is gone, or silent for `timeout` seconds."""
        self._connection.settimeout(timeout)
        try:
            line = self._lines.readline(_LONGEST)
            message = json.loads(line) if line else None
        except (OSError, ValueError, RecursionError) as error:
            raise ConnectionLost(f"{self.name} does not answer: {error}", hint="see why it ended") from error
        if not isinstance(message, dict):
            raise ConnectionLost(f"{self.name} is gone", hint="see why it ended")
        return message

    def close(self) -> None:
        """Ends the connection."""
        self._lines.close()
        self._connection.close()
