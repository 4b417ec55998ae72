"""The connections between the ranks of one job: a star around rank 0, one JSON object a line, no polling.

Everything is on CPU and sockets, since the accelerators may be parked while ranks wait. A rank that dies closes its
connection, which wakes whoever waits for it.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from timeslice_api.errors import ConnectionLost, InvalidRequest

RETRY_S = 0.1  # while rank 0 does not listen yet
HELLO_S = 10.0
_LONGEST = 1 << 20  # bytes of a message


def listen(address: str) -> socket.socket:
    """Where rank 0 waits for the others. Raises ConnectionLost when the address cannot be used."""
    family, where = _parsed(address)
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family == socket.AF_INET:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        else:
            Path(str(where)).unlink(missing_ok=True)
        server.bind(where)
        server.listen(1024)
    except OSError as error:
        server.close()
        raise ConnectionLost(f"rank 0 cannot listen at {address}: {error}") from error
    return server


def connect(address: str, within_s: float) -> socket.socket:
    """A connection to rank 0, which may start later than this one. Raises ConnectionLost after `within_s` seconds."""
    family, where = _parsed(address)
    until = time.monotonic() + within_s
    while True:
        connection = socket.socket(family, socket.SOCK_STREAM)
        connection.settimeout(max(RETRY_S, until - time.monotonic()))
        try:
            connection.connect(where)
        except OSError as error:
            connection.close()
            if time.monotonic() >= until:
                raise ConnectionLost(f"rank 0 does not listen at {address}: {error}") from error
            time.sleep(RETRY_S)
        else:
            connection.settimeout(None)
            return connection


def _parsed(address: str) -> tuple[socket.AddressFamily, Any]:
    if "/" in address:
        return socket.AF_UNIX, address.removeprefix("unix://")
    host, colon, port = address.rpartition(":")
    if not (colon and host and port.isdigit()):
        raise InvalidRequest(f"ranks address {address!r} is neither host:port nor a path")
    return socket.AF_INET, (host, int(port))


class Link:
    """One connection; `name` is the other side's, for messages."""

    def __init__(self, connection: socket.socket, name: str) -> None:
        if connection.family != socket.AF_UNIX:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
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


def accept_all(server: socket.socket, count: int, within_s: float, *, greeting: Callable[[Link], int]) -> list[Link]:
    """The links of `count` other ranks, by rank. Raises ConnectionLost when they do not all come in time."""
    until = time.monotonic() + within_s
    links: dict[int, Link] = {}
    while len(links) < count:
        server.settimeout(max(0.001, until - time.monotonic()))
        try:
            connection, _ = server.accept()
        except TimeoutError:
            raise ConnectionLost(
                f"{count - len(links)} of {count} other ranks did not come in {within_s:g} s"
            ) from None
        link = Link(connection, "a rank")
        rank = greeting(link)
        link.name = f"rank {rank}"
        links[rank] = link
    return [links[rank] for rank in sorted(links)]
