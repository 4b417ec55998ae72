"""gRPC servers on the unix sockets of a plugin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import grpc.aio

from dra_kubeletplugin.sockets import demand_free

# Without these gRPC itself cancels calls of a burst which nobody has had the time to accept.
_OPTIONS = (
    ("grpc.server.max_pending_requests", 4096),
    ("grpc.server.max_pending_requests_hard_limit", 8192),
    ("grpc.max_receive_message_length", 4 << 20),  # the kubelet asks for a pod's claims at a time
)


@dataclass
class SocketServer:
    """A server, listening at a socket that is its own."""

    server: grpc.aio.Server
    path: Path
    inode: int

    @classmethod
    async def listen(cls, path: Path, register: Callable[[grpc.aio.Server], None]) -> SocketServer:
        """Starts to serve there what `register` adds to the server.

        Raises:
            SocketInUseError: something else is there.
            OSError: it cannot listen there.
        """
        demand_free(path)
        server = grpc.aio.server(options=_OPTIONS)
        register(server)
        try:
            server.add_insecure_port(f"unix://{path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen at {path}: {error}") from error
        await server.start()
        return cls(server, path, _inode(path))

    async def stop(self, grace_s: float) -> None:
        """Takes no more calls, and ends those under way after the grace. The socket's file goes, if it is still this
        server's.
        """
        mine = _inode(self.path) == self.inode
        await self.server.stop(grace_s)
        if mine:
            self.path.unlink(missing_ok=True)


def _inode(path: Path) -> int:
    """0 if there is no such file."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
