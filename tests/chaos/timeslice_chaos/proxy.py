"""The link between a node and the orchestrator, which can be cut, slow, or half open."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from enum import Enum
from pathlib import Path


class Mode(Enum):
    """What becomes of the bytes."""

    OPEN = "open"
    CUT = "cut"  # connections are closed, new ones too
    SILENT = "silent"  # nothing is closed, and nothing gets through
    DEAF = "deaf"  # the node hears nothing
    MUTE = "mute"  # the node is not heard


_STOPS_TO_NODE = frozenset({Mode.SILENT, Mode.DEAF})
_STOPS_FROM_NODE = frozenset({Mode.SILENT, Mode.MUTE})


class Proxy:
    """Listens at one unix socket and forwards to another. What it holds back is delivered later, as a network does."""

    def __init__(self, path: Path, target: Path) -> None:
        self.path, self.target = path, target
        self._mode, self._delay_s = Mode.OPEN, 0.0
        self._news = threading.Condition()
        self._ends: set[socket.socket] = set()
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: Mode, *, delay_s: float = 0.0) -> None:
        """From now on; `delay_s` holds each piece up (seconds)."""
        with self._news:
            self._mode, self._delay_s = mode, delay_s
            if mode is Mode.CUT:
                self._end_all()
            self._news.notify_all()

    def lead_to(self, target: Path) -> None:
        """Connections go elsewhere from now on; those that are open end."""
        with self._news:
            self.target = target
            self._end_all()

    def close(self) -> None:
        """Ends everything, and removes the socket."""
        with self._news:
            self._closed = True
            self._end_all()
            self._news.notify_all()
        self._listener.close()
        self.path.unlink(missing_ok=True)

    def _end_all(self) -> None:
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                node, _ = self._listener.accept()
            except OSError:
                return
            self._connect(node)

    def _connect(self, node: socket.socket) -> None:
        target = socket.socket(socket.AF_UNIX)
        try:
            if self._mode is Mode.CUT:
                raise ConnectionRefusedError
            target.connect(str(self.target))
        except OSError:
            node.close()
            target.close()
            return
        with self._news:
            self._ends |= {node, target}
        for source, sink, stops in ((node, target, _STOPS_FROM_NODE), (target, node, _STOPS_TO_NODE)):
            threading.Thread(target=self._pump, args=(source, sink, stops), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, stops: frozenset[Mode]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                with self._news:
                    self._news.wait_for(lambda: self._closed or self._mode not in stops)
                time.sleep(self._delay_s)
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        with self._news:
            if source in self._ends:  # the other pump closes its own source
                self._ends.discard(source)
        source.close()
