"""How a program ends when nobody reads its output any more, as behind `| head`: quietly, and in order."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

Arguments = ParamSpec("Arguments")

EXIT_UNREAD = 141  # what a shell shows of a program that SIGPIPE ended: 128 + 13


def ends_when_unread(main: Callable[Arguments, int]) -> Callable[Arguments, int]:
    """Decorates a program's `main`: it returns EXIT_UNREAD, and says nothing, when its output's reader has gone.

    SIGPIPE itself would end a program also when the other side of a socket has gone, and what it started would stay.
    """

    @wraps(main)
    def guarded(*arguments: Arguments.args, **named: Arguments.kwargs) -> int:
        try:
            try:
                status = main(*arguments, **named)
            except SystemExit:  # of argparse, which has printed the help
                _flush()
                raise
            _flush()
            return status
        except BrokenPipeError:
            if not _silenced():
                raise  # another pipe, or a socket: that is an error
            return EXIT_UNREAD

    return guarded


def _flush() -> None:
    """Now, when it can still be seen to fail; the interpreter's own flush at its end would complain."""
    if sys.stdout is not None:  # a program may be started without one
        sys.stdout.flush()


def _silenced() -> bool:
    """Whether standard output or error has lost its reader; what would still be written there goes nowhere."""
    poller = select.poll()
    for descriptor in (1, 2):
        poller.register(descriptor, 0)
    lost = [descriptor for descriptor, event in poller.poll(0) if event & (select.POLLERR | select.POLLHUP)]
    if lost:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for descriptor in lost:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
    return bool(lost)
