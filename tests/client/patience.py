"""Waiting for what another thread or process brings about."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

WITHIN_S = 5.0
WITHIN_S_OF_PROCESSES = 25.0  # a busy machine starts them slowly; tests/conftest.py sets it for tests of real processes


def eventually(condition: Callable[[], object], within_s: float | None = None) -> None:
    until = time.monotonic() + (within_s or WITHIN_S)
    while not condition():
        assert time.monotonic() < until, "it did not come about in time"
        time.sleep(0.01)


def in_thread(function: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=function, daemon=True)
    thread.start()
    return thread
