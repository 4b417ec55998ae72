"""A daemon thread that renews leases while a training loop keeps the main thread, or the event loop, busy."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import grpc
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import orchestrator_pb2

from timeslice.acquisition import Grant

if TYPE_CHECKING:
    from timeslice.calls import Method

log = logging.getLogger("timeslice")

LINGER_S = 30.0  # an idle thread waits so long for the next lease before it ends
LONGEST_CALL_S = 10.0


class KeepAlive:
    """Renews every ttl_s / 3, and sooner after a failure. It touches no accelerator, so a parked job keeps it running.

    Args:
        job_id: whose leases.
        method: KeepAlive of the orchestrator.
        renewable: the leases to renew now.
        on_news: told which lease ids are lost, and which are wanted by others; runs in the thread.
    """

    def __init__(
        self,
        job_id: str,
        method: Callable[[], Method],
        *,
        renewable: Callable[[], list[Grant]],
        on_news: Callable[[list[str], list[str]], None],
    ) -> None:
        self._job_id, self._method = job_id, method
        self._renewable, self._on_news = renewable, on_news
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._failing_since: float | None = None

    def attend(self) -> None:
        """There is a new lease: makes sure that the thread runs."""
        with self._lock:
            if self._stopped:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="timeslice-keepalive", daemon=True)
                self._thread.start()
            self._wake.set()

    def stop(self) -> None:
        """Ends the thread soon; it is not waited for."""
        with self._lock:
            self._stopped = True
            self._wake.set()

    def _run(self) -> None:
        renewed = time.monotonic()
        while not self._stopped:
            leases = self._renewable()
            if not leases:
                if not self._wake.wait(LINGER_S) and self._ended():
                    return
                self._wake.clear()
                renewed = time.monotonic()
                continue
            ttl_s = min(lease.ttl_s for lease in leases)
            due = renewed + (ttl_s / 3 if self._failing_since is None else min(ttl_s / 10, 2.0))
            if self._wake.wait(max(0.0, due - time.monotonic())):
                self._wake.clear()  # a lease came: its time to live may be shorter
                continue
            self._renew(leases, ttl_s)
            renewed = time.monotonic()

    def _ended(self) -> bool:
        with self._lock:
            if self._wake.is_set():
                return False
            self._thread = None
            return True

    def _renew(self, leases: list[Grant], ttl_s: float) -> None:
        request = orchestrator_pb2.KeepAliveRequest(job_id=self._job_id, lease_ids=[lease.lease_id for lease in leases])
        try:
            answer = self._method()(request, timeout=min(max(ttl_s / 3, 0.5), LONGEST_CALL_S))
        except grpc.RpcError as error:
            self._failed(from_rpc(error))
            return
        except ValueError:  # the channel was closed
            return
        if self._failing_since is not None:
            log.info("the orchestrator answers again")
        self._failing_since = None
        self._tell(list(answer.lost_lease_ids), list(answer.wanted_lease_ids))

    def _failed(self, error: Exception) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            log.warning("leases are not renewed: %s; the devices stay this job's meanwhile", error)

    def _tell(self, lost: list[str], wanted: list[str]) -> None:
        try:
            self._on_news(lost, wanted)
        except Exception:  # the outermost loop of this thread: a user's callback must not end the renewals
            log.exception("a callback of the client failed")
