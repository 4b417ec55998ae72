"""Tells processes in pods by which pid this machine knows them."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from pathlib import Path

_UCRED = struct.Struct("3i")  # pid, uid, gid: unix(7)


class PidOffice:
    """Answers whoever connects with its pid, until it is closed."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen(16)
        self._serving = threading.Thread(target=self._serve, daemon=True)
        self._serving.start()

    def close(self) -> None:
        """Answers nobody any more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._serving.join()
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                asking, _ = self._listener.accept()
            except OSError:
                return
            with asking, contextlib.suppress(OSError):
                pid, _, _ = _UCRED.unpack(asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
                asking.sendall(str(pid).encode())
