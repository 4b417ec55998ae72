"""What another process of the driver does to this one's lock and sockets. Imports little, to be there at once."""

from __future__ import annotations

import fcntl
import socket
import sys
from pathlib import Path


def hold(path: Path) -> None:
    """Holds the lock until it is killed."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        print("held", flush=True)
        sys.stdin.read()


def listen(path: Path) -> None:
    """Listens at the socket until it is killed."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        print("listening", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    {"hold": hold, "listen": listen}[sys.argv[1]](Path(sys.argv[2]))
