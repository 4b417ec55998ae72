"""SIGTERM ends a Python process without running a single `finally`; with this it ends like Ctrl-C does."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterable
from types import FrameType


def install_signal_handlers(signals: Iterable[signal.Signals] = (signal.SIGTERM,)) -> None:
    """Makes these signals end the process in order: regions yield, waiting requests leave the queue.

    The first one raises SystemExit(128 + number) in the main thread, a second one ends the process at once. A signal
    that already has a handler, or is ignored, is left alone: a framework that saves a checkpoint on SIGTERM needs the
    accelerators for it, and its exit yields them. Forked children, such as data loaders, get the default action back,
    since schedulers send a signal to all processes of a step.

    Raises:
        RuntimeError: called outside the main thread.
    """
    if threading.current_thread() is not threading.main_thread():
        raise RuntimeError("signal handlers can be installed in the main thread only")
    for number in signals:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _Ending(os.getpid()))


class _Ending:
    def __init__(self, owner_pid: int) -> None:
        self._owner_pid = owner_pid

    def __call__(self, number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        if os.getpid() != self._owner_pid:
            os.kill(os.getpid(), number)
            return
        raise SystemExit(128 + number)
