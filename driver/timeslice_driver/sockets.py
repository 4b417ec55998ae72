"""The node's address."""

from __future__ import annotations

import os
from pathlib import Path

import grpc.aio
from timeslice_api.errors import ConfigError
from timeslice_api.names import checked_socket_path


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
