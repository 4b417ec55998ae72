"""The child process that calls the CUDA driver: it may hang or crash without harm to the node, and is then replaced.

Run as `python -m timeslice_driver.backends.cuda_helper LIBCUDA FD`. It speaks JSON lines over the socket FD:

    <- {"ready": true, "rc": 0, "version": 12080, "missing": []}                            once, after cuInit
    -> {"id": 1, "call": "lock", "pid": 4711, "timeout_ms": 30000}
    <- {"id": 1, "rc": 0, "value": 0, "seconds": 0.0012}

Each call runs in a thread of its own, so many processes are locked at once. At the end of the stream it exits at once.
Structures: every args struct of the checkpoint API is 64 bytes, from CUDA 12.8 on (cuda.h).
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

SYMBOLS = {
    "state": "cuCheckpointProcessGetState",
    "restore_thread": "cuCheckpointProcessGetRestoreThreadId",
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}
_QUERIES = ("state", "restore_thread")  # these fill an int instead of taking an args struct
_AT_ONCE = 512  # calls in parallel; all processes of a node are locked together


class Driver:
    """The functions of libcuda.so.1 that park and restore."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._functions: dict[str, Any] = {}
        for call, symbol in SYMBOLS.items():
            try:
                self._functions[call] = getattr(self._library, symbol)
            except AttributeError:  # a driver before 570
                continue

    def greeting(self) -> dict[str, Any]:
        """Initialises the driver, once for all calls."""
        version = ctypes.c_int(0)
        rc = self._library.cuInit(0)
        self._library.cuDriverGetVersion(ctypes.byref(version))
        missing = [symbol for call, symbol in SYMBOLS.items() if call not in self._functions]
        return {"ready": True, "rc": rc, "version": version.value, "missing": missing}

    def call(self, name: str, pid: int, timeout_ms: int) -> tuple[int, int]:
        """One call: the CUresult and, for a query, its value."""
        if name in _QUERIES:
            value = ctypes.c_int(0)
            return self._functions[name](pid, ctypes.byref(value)), value.value
        args = (ctypes.c_uint32 * 16)()
        if name == "lock":
            args[0] = timeout_ms
        return self._functions[name](pid, ctypes.byref(args)), 0


class Conversation:
    """Requests in, answers out, in whatever order the calls end."""

    def __init__(self, driver: Driver, stream: socket.socket) -> None:
        self._driver = driver
        self._stream = stream
        self._writing = threading.Lock()
        self._threads = ThreadPoolExecutor(max_workers=_AT_ONCE)

    def run(self) -> None:
        """Until the node closes the stream, or has died."""
        try:
            self._send(self._driver.greeting())
            for line in self._stream.makefile("rb"):
                self._threads.submit(self._answer, json.loads(line))
        except ConnectionError:
            return

    def _answer(self, request: dict[str, Any]) -> None:
        began = time.monotonic()
        rc, value = self._driver.call(request["call"], request["pid"], request.get("timeout_ms", 0))
        self._send({"id": request["id"], "rc": rc, "value": value, "seconds": time.monotonic() - began})

    def _send(self, message: dict[str, Any]) -> None:
        with self._writing:
            self._stream.sendall(json.dumps(message).encode() + b"\n")


def main() -> None:
    """Serves one node until it closes the stream; exits without waiting for calls that hang."""
    path, descriptor = sys.argv[1], int(sys.argv[2])
    stream = socket.socket(fileno=descriptor)
    try:
        driver = Driver(path)
    except (OSError, UnicodeError) as error:  # the linker repeats the path, whatever its bytes are
        stream.sendall(json.dumps({"ready": False, "error": str(error)}).encode() + b"\n")
        return
    status = 1
    try:
        Conversation(driver, stream).run()
        status = 0
    finally:
        if fatal := sys.exc_info()[1]:
            traceback.print_exception(fatal)
        os._exit(status)  # not sys.exit, which would wait for the threads of calls that hang


if __name__ == "__main__":
    main()
