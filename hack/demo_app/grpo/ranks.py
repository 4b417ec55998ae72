"""Ranks of one job: each trains on prompts of its own, and all make the same updates, of the mean of their gradients.

Plain sockets in a star around rank 0 do here what NCCL does on real devices. Gradients are added in the order of the
ranks, so that the same recipe with as many ranks gives the same weights, to the last bit.
"""

from __future__ import annotations

import os
import socket
import time

import numpy as np

from grpo.policy import Floats

START_S = 120.0  # pods of a job start minutes apart on a busy machine
ANSWER_S = 60.0  # between ranks that are in the same phase
RETRY_S = 0.1
_NUMBER = 4  # bytes of a rank's number, which is the first that it sends


class Ranks:
    """This process among the ranks of its job; they are connected when it is made.

    Args:
        rank, size: which one of how many.
        host, port: where rank 0 is.

    Raises:
        OSError: the others are not there in time.
    """

    def __init__(self, rank: int = 0, size: int = 1, *, host: str = "", port: int = 0) -> None:
        self.rank, self.size = rank, size
        if size == 1:
            self._links: list[socket.socket] = []
        elif rank == 0:
            self._links = _accepted(port, size - 1)
        else:
            self._links = [_connected(host, port)]
            self._links[0].sendall(rank.to_bytes(_NUMBER))

    @classmethod
    def from_environment(cls) -> Ranks:
        """By torchrun's variables; without them it is the only one."""
        rank, size = (int(os.environ.get(name, default)) for name, default in (("RANK", "0"), ("WORLD_SIZE", "1")))
        port = int(os.environ.get("MASTER_PORT", "0"))
        return cls(rank, size, host=os.environ.get("MASTER_ADDR", ""), port=port)

    def mean(self, values: Floats) -> Floats:
        """The mean of what all ranks give, the same on each, which all call equally often.

        Raises:
            OSError: another rank has ended, or is silent for a minute.
        """
        if self.size == 1:
            return values
        if self.rank == 0:
            total = values.copy()
            for link in self._links:
                total += _received(link, values)
            total /= self.size
            for link in self._links:
                link.sendall(total.data)
            return total
        self._links[0].sendall(np.ascontiguousarray(values).data)
        return _received(self._links[0], values)

    def close(self) -> None:
        """Ends the connections."""
        for link in self._links:
            link.close()


def _accepted(port: int, count: int) -> list[socket.socket]:
    """Connections of the others, by rank."""
    until, found = time.monotonic() + START_S, dict[int, socket.socket]()
    with socket.create_server(("", port)) as server:
        while len(found) < count:
            server.settimeout(max(0.001, until - time.monotonic()))
            link, _ = server.accept()
            link.settimeout(ANSWER_S)
            found[int.from_bytes(_bytes(link, _NUMBER))] = link
    return [found[rank] for rank in sorted(found)]


def _connected(host: str, port: int) -> socket.socket:
    until = time.monotonic() + START_S
    while True:
        try:
            return socket.create_connection((host, port), timeout=ANSWER_S)
        except OSError:  # it has no address yet, or does not listen
            if time.monotonic() >= until:
                raise
            time.sleep(RETRY_S)


def _received(link: socket.socket, like: Floats) -> Floats:
    return np.frombuffer(_bytes(link, like.nbytes), like.dtype)


def _bytes(link: socket.socket, count: int) -> bytes:
    data = bytearray(count)
    view = memoryview(data)
    while view:
        read = link.recv_into(view)
        if not read:
            raise ConnectionError("another rank of the job has ended")
        view = view[read:]
    return bytes(data)
