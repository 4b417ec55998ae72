"""Yields and withdrawals that could not be delivered at once: a daemon thread goes on trying, within a bounded time."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from timeslice_api.status import from_rpc

if TYPE_CHECKING:
    from timeslice.calls import Method

log = logging.getLogger("timeslice")

GIVE_UP_AFTER_S = 120.0  # leases have expired by then, and clients that are gone have left the queue
CALL_S = 5.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


@dataclass(frozen=True)
class Parcel:
    """A call that must reach the orchestrator; it is safe to repeat. `what` names it for people."""

    method: Method
    request: Any
    what: str
    give_up_at: float


class Delivery:
    """Delivers in order. A refusal ends a parcel like an answer does: the orchestrator has heard it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: deque[Parcel] = deque()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def add(self, method: Method, request: Any, what: str) -> None:
        """Takes a call over; returns at once."""
        parcel = Parcel(method, request, what, time.monotonic() + GIVE_UP_AFTER_S)
        with self._changed:
            self._pending.append(parcel)
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name="timeslice-delivery", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Starts no further thread: at the end of a process that is an error. What is added is left to `flush`."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def flush(self, until: float) -> bool:
        """Delivers what is left in the calling thread, until that time (monotonic seconds); False when some is left.

        For the end of a process, when threads can no longer be relied on.
        """
        self.stop()
        with self._changed:
            parcels = list(self._pending)
            self._pending.clear()
        undelivered = [parcel for parcel in parcels if not _delivered(parcel, until - time.monotonic())]
        for parcel in undelivered:
            log.warning("%s did not reach the orchestrator; its lease will run out", parcel.what)
        return not undelivered

    def _run(self) -> None:
        pause = FIRST_PAUSE_S
        while (parcel := self._head()) is not None:
            if _delivered(parcel, CALL_S):
                pause = FIRST_PAUSE_S
                self._drop(parcel)
            elif time.monotonic() >= parcel.give_up_at:
                log.warning("%s did not reach the orchestrator in %.0f s; given up", parcel.what, GIVE_UP_AFTER_S)
                self._drop(parcel)
            else:
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)

    def _head(self) -> Parcel | None:
        with self._changed:
            if self._stopped or not self._pending:
                self._thread = None
                return None
            return self._pending[0]

    def _drop(self, parcel: Parcel) -> None:
        with self._changed:
            if self._pending and self._pending[0] is parcel:
                self._pending.popleft()


def _delivered(parcel: Parcel, limit_s: float) -> bool:
    if limit_s <= 0:
        return False
    try:
        parcel.method(parcel.request, timeout=min(limit_s, CALL_S))
    except grpc.RpcError as rpc_error:
        error = from_rpc(rpc_error)
        if error.retryable:
            return False
        log.warning("%s was refused: %s", parcel.what, error)
    except ValueError:  # the channel was closed
        return False
    return True
