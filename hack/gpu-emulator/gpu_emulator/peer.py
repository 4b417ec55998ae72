"""One connection, whose other end may vanish while its request is being worked on."""

import asyncio
import os
import socket
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from gpu_emulator import procfs

T = TypeVar("T")


class PeerGoneError(Exception):
    """The other end has closed its connection, which is how the death of a process shows."""


class Peer:
    """Lines in, lines out. ``pid`` and ``uid`` are the kernel's word, as seen from this process' pid namespace."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._following: asyncio.Future[bytes] | None = None
        self.pid, self.uid = procfs.peer_of(writer.get_extra_info("socket"))

    async def next_line(self) -> str:
        """Without its newline. PeerGoneError at the end, ValueError for a line of absurd length."""
        line = await self._read_ahead()
        self._following = None
        if not line:
            raise PeerGoneError
        return line.decode(errors="replace").rstrip("\n")

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, which is cancelled when the peer goes away: then PeerGoneError."""
        task = asyncio.ensure_future(work)
        try:
            following = self._read_ahead()
            both: list[asyncio.Future[Any]] = [task, following]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not task.done() and not following.result():
                raise PeerGoneError
            return await task
        finally:
            task.cancel()

    def _read_ahead(self) -> asyncio.Future[bytes]:
        if self._following is None:
            self._following = asyncio.ensure_future(self._reader.readline())
        return self._following

    def send(self, line: str) -> None:
        self._writer.write(f"{line}\n".encode())

    def send_descriptors(self, line: str, descriptors: Sequence[int]) -> None:
        """Must be the first thing sent: it bypasses the writer's buffer."""
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as raw:
            socket.send_fds(raw, [f"{line}\n".encode()], descriptors)

    def close(self) -> None:
        if self._following is not None:
            self._following.cancel()
        self._writer.close()
