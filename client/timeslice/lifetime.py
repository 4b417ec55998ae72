"""The end of a process, and forks: nothing left behind may hold a group, or give the parent's lease back."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from typing import Protocol

EXIT_BUDGET_S = 3.0  # for all clients of a process together


class Followed(Protocol):
    """A session, as seen from here."""

    def end(self, until: float) -> bool:
        """Gives everything back until that time (monotonic seconds)."""
        ...

    def become_inert(self) -> None:
        """Marks a copy in a forked child."""
        ...


_followed: weakref.WeakSet[Followed] = weakref.WeakSet()
_of_parents: list[Followed] = []  # kept for ever: a channel must not be taken apart in a process that does not own it


def follow(session: Followed) -> None:
    """Ends the session with the process, and makes its copy in a forked child inert."""
    _followed.add(session)


def _end_all() -> None:
    until = time.monotonic() + EXIT_BUDGET_S
    for session in list(_followed):
        session.end(until)


def _after_fork_in_child() -> None:
    for session in list(_followed):
        session.become_inert()
        _of_parents.append(session)
    _followed.clear()


atexit.register(_end_all)
os.register_at_fork(after_in_child=_after_fork_in_child)
