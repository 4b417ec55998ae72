"""Calls that wait: Acquires for their grant, by request, and watchers for a change of their group."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias, TypeVar

from timeslice_api.errors import Stopping, TimesliceError

from timeslice_orchestrator.core.effects import Granted, ResetDone
from timeslice_orchestrator.core.model import GroupId, RequestId

Wait: TypeAlias = "asyncio.Future[Granted | None]"
_T = TypeVar("_T")


class Waits:
    """The Acquires at the server. A repetition may overlap with the first call, so a request may have several."""

    def __init__(self) -> None:
        self._waits: dict[RequestId, set[Wait]] = {}

    def __contains__(self, request_id: RequestId) -> bool:
        return request_id in self._waits

    @contextmanager
    def waiting(self, request_id: RequestId) -> Iterator[Wait]:
        """One call's wait; its result is the grant, or None when its time is over."""
        wait: Wait = asyncio.get_running_loop().create_future()
        self._waits.setdefault(request_id, set()).add(wait)
        try:
            yield wait
        finally:
            self._waits[request_id].discard(wait)
            if not self._waits[request_id]:
                del self._waits[request_id]

    def grant(self, effect: Granted) -> None:
        """Answers every call for the request."""
        for wait in self._waits.get(effect.request_id, ()):
            if not wait.done():
                wait.set_result(effect)

    def fail(self, request_id: RequestId, error: TimesliceError) -> None:
        """Ends every call for the request."""
        for wait in self._waits.get(request_id, ()):
            fail(wait, error)

    def fail_all(self, error: TimesliceError) -> None:
        """Ends every call."""
        for request_id in self._waits:
            self.fail(request_id, error)


class Resets:
    """The Resets at the server, each with an id of its own."""

    def __init__(self) -> None:
        self._waits: dict[str, asyncio.Future[ResetDone]] = {}

    @contextmanager
    def waiting(self, reset_id: str) -> Iterator[asyncio.Future[ResetDone]]:
        """The call's wait for its outcome."""
        self._waits[reset_id] = asyncio.get_running_loop().create_future()
        try:
            yield self._waits[reset_id]
        finally:
            del self._waits[reset_id]

    def done(self, effect: ResetDone) -> None:
        """Answers the call, if it is still here."""
        wait = self._waits.get(effect.reset_id)
        if wait is not None and not wait.done():
            wait.set_result(effect)

    def fail_all(self, error: TimesliceError) -> None:
        """Ends every call."""
        for wait in self._waits.values():
            fail(wait, error)


class Watchers:
    """Who wants to know of changes, by group."""

    def __init__(self) -> None:
        self._events: dict[GroupId, set[asyncio.Event]] = {}

    @contextmanager
    def watching(self, group_id: GroupId) -> Iterator[asyncio.Event]:
        """An event that is set at each change; the watcher clears it."""
        changed = asyncio.Event()
        self._events.setdefault(group_id, set()).add(changed)
        try:
            yield changed
        finally:
            self._events[group_id].discard(changed)
            if not self._events[group_id]:
                del self._events[group_id]

    def wake(self, group_id: GroupId) -> None:
        """Tells the watchers of a group."""
        for changed in self._events.get(group_id, ()):
            changed.set()

    def wake_all(self) -> None:
        """Tells everybody."""
        for group_id in self._events:
            self.wake(group_id)


def fail(future: asyncio.Future[_T], error: TimesliceError) -> None:
    """Has a future raise the error, unless it is done."""
    if not future.done():
        # one exception object each: its traceback grows in every task that raises it
        future.set_exception(type(error)(error.message, hint=error.hint, job_id=error.job_id, group_id=error.group_id))


def stopping() -> Stopping:
    """The end of a call that was here when the orchestrator stopped."""
    return Stopping("the orchestrator is being stopped")
