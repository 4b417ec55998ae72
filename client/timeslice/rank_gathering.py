"""Rank 0 at its door: waits for the other ranks, and for nobody else.

Whoever connects has a few seconds to prove that it is a rank, side by side with all others, so that connections that
say nothing, or too little, keep no rank out. When all ranks are there the door can be closed.
"""

from __future__ import annotations

import json
import logging
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from timeslice_api.errors import ConfigError, ConnectionLost

from timeslice.rank_key import RankKey, StrangerError
from timeslice.rank_link import RETRY_S, Link

log = logging.getLogger("timeslice")

HELLO_S: Final = 10.0  # from a connection to its hello
_TELL_S: Final = 1.0  # a line fits into any socket's buffer
# Connections that have not said hello; beyond, the oldest gives way, and tries again if it is a rank.
_MOST: Final = 256
_LONGEST: Final = 4096  # bytes of a hello


class _Newcomer:
    """A connection that has not said yet which rank it is."""

    def __init__(self, connection: socket.socket, key: RankKey | None) -> None:
        connection.setblocking(False)
        self.connection = key.wrapped(connection, accepted=True) if key else connection
        self.until = time.monotonic() + HELLO_S
        self.awaits = selectors.EVENT_READ
        self._key, self._said = key, b""

    def hello(self) -> dict[str, Any] | None:
        """What it says of itself; None while that is not complete. Raises OSError, ValueError or StrangerError."""
        try:
            self._shake_hands()
            while not self._said.endswith(b"\n"):
                self._hear()
        except (BlockingIOError, ssl.SSLWantReadError):
            self.awaits = selectors.EVENT_READ
        except ssl.SSLWantWriteError:
            self.awaits = selectors.EVENT_WRITE
        else:
            return _object(self._said)
        return None

    def refuse(self, message: str) -> None:
        """Tells a rank why it is not let in, if it still listens."""
        with suppress(OSError):
            self.connection.settimeout(_TELL_S)
            self.connection.sendall(json.dumps({"refused": message}).encode() + b"\n")

    def _shake_hands(self) -> None:
        if self._key and isinstance(self.connection, ssl.SSLSocket):
            self.connection.do_handshake()
            self._key.check(self.connection)
            self._key = None

    def _hear(self) -> None:
        more = self.connection.recv(_LONGEST)
        if not more:
            raise StrangerError("it has gone")
        self._said += more
        if len(self._said) > _LONGEST:
            raise StrangerError("it says too much")


class Gathering:
    """The ranks that have come so far.

    Args:
        server: where they connect.
        count: how many others there are.
        key: see `rank_key.key_for`.
        greet: tells from a hello which rank it is; raises ConfigError when it is none of this job.
    """

    def __init__(
        self, server: socket.socket, count: int, *, key: RankKey | None, greet: Callable[[dict[str, Any]], int]
    ) -> None:
        self._server, self._count, self._key, self._greet = server, count, key, greet
        self._links: dict[int, Link] = {}
        self._newcomers: dict[_Newcomer, None] = {}  # the oldest is the first
        self._turned_away, self._reason = 0, ""
        self._selector = selectors.DefaultSelector()

    def links(self, within_s: float) -> list[Link]:
        """The links to all others, by rank; once. Raises ConnectionLost when they do not all come in time."""
        try:
            self._gather(time.monotonic() + within_s, within_s)
        except BaseException:
            for link in self._links.values():
                link.close()
            raise
        finally:
            self._selector.close()
            for newcomer in self._newcomers:
                newcomer.connection.close()
        return [self._links[rank] for rank in sorted(self._links)]

    def _gather(self, until: float, within_s: float) -> None:
        self._server.setblocking(False)
        self._selector.register(self._server, selectors.EVENT_READ)
        while len(self._links) < self._count:
            now = time.monotonic()
            if now >= until:
                missing = f"{self._count - len(self._links)} of {self._count} other ranks"
                message = f"{missing} did not come in {within_s:g} s{self._strangers()}"
                raise ConnectionLost(message, hint="did they start, and with the same address?")
            next_due = next((newcomer.until for newcomer in self._newcomers), until)
            for ready, _ in self._selector.select(max(0.0, min(until, next_due) - now)):
                if ready.data is None:
                    self._accept()
                elif ready.data in self._newcomers:
                    self._listen_to(ready.data)
            self._let_go_of_late_ones()

    def _accept(self) -> None:
        try:
            connection, _ = self._server.accept()
        except BlockingIOError:
            return
        except OSError as error:  # such as too many open files
            if not self._give_way():
                log.warning("no rank can be let in: %s", error)
                time.sleep(RETRY_S)  # nobody tells when that has changed
            return
        try:
            newcomer = _Newcomer(connection, self._key)
        except OSError:  # it has gone already
            connection.close()
            return
        self._newcomers[newcomer] = None
        self._selector.register(newcomer.connection, newcomer.awaits, newcomer)
        if len(self._newcomers) > _MOST:
            self._give_way()
        self._listen_to(newcomer)

    def _listen_to(self, newcomer: _Newcomer) -> None:
        try:
            hello = newcomer.hello()
        except (OSError, ValueError, RecursionError, StrangerError) as error:
            self._turn_away(newcomer, str(error))
            return
        if hello is None:
            self._selector.modify(newcomer.connection, newcomer.awaits, newcomer)
        else:
            self._admit(newcomer, hello)

    def _admit(self, newcomer: _Newcomer, hello: dict[str, Any]) -> None:
        try:
            rank = self._greet(hello)
        except ConfigError as error:
            newcomer.refuse(error.message)
            self._turn_away(newcomer, error.message)
            return
        self._forget(newcomer)
        newcomer.connection.settimeout(_TELL_S)
        link = Link(newcomer.connection, f"rank {rank}")
        try:
            link.send(welcome=rank)
        except ConnectionLost:  # it comes again, if it lives
            link.close()
            return
        if before := self._links.pop(rank, None):  # which has not heard its welcome
            before.close()
        self._links[rank] = link

    def _let_go_of_late_ones(self) -> None:
        now = time.monotonic()
        for newcomer in [each for each in self._newcomers if each.until <= now]:
            self._turn_away(newcomer, f"it has said nothing for {HELLO_S:g} s")

    def _give_way(self) -> bool:
        oldest = next(iter(self._newcomers), None)
        if oldest:
            self._turn_away(oldest, "too many others have come since")
        return oldest is not None

    def _turn_away(self, newcomer: _Newcomer, reason: str) -> None:
        self._forget(newcomer)
        newcomer.connection.close()
        self._turned_away, self._reason = self._turned_away + 1, reason
        level = logging.WARNING if self._turned_away == 1 else logging.DEBUG
        log.log(level, "a connection to the ranks' address was turned away: %s", reason)

    def _forget(self, newcomer: _Newcomer) -> None:
        self._selector.unregister(newcomer.connection)
        del self._newcomers[newcomer]

    def _strangers(self) -> str:
        if not self._turned_away:
            return ""
        return f"; {self._turned_away} connections were turned away, the last one since: {self._reason}"


def _object(line: bytes) -> dict[str, Any]:
    found = json.loads(line)
    if not isinstance(found, dict):
        raise StrangerError("it says something else than a rank would")
    return found
