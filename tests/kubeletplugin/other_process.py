"""What another process of the driver does to this one's lock and sockets; run with the Python of the tests."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

from dra_kubeletplugin.node_lock import NodeLock


async def hold(path: Path) -> None:
    """Holds the lock until it is killed."""
    async with NodeLock(path).held():
        print("held", flush=True)
        await asyncio.Event().wait()


def listen(path: Path) -> None:
    """Listens at the socket until it is killed."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        print("listening", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    what, where = sys.argv[1], Path(sys.argv[2])
    if what == "hold":
        asyncio.run(hold(where))
    else:
        listen(where)
