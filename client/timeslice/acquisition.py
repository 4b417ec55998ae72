"""The decisions of one acquire, without I/O: what to ask next, what an answer means, how long to pause."""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from timeslice_api.errors import AcquireTimeout, RequestEnded, TimesliceError
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import orchestrator_pb2, snapshot_agent_pb2

from timeslice.waiting import ProgressLine, WaitStatus

if TYPE_CHECKING:
    import grpc

    from timeslice.calls import Method

SLICES_S = (2.0, 5.0, 8.0)  # how long one call may wait; the last one repeats, and paces the progress line
MARGIN_S = 5.0  # that an answer may be late
CALLER_MARGIN_S = 1.0  # the same, when the caller's own time limit is near
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.1, 2.0


@dataclass(frozen=True)
class Grant:
    """A lease as the orchestrator gave it. `token` rises for ever; `waited_s` since the request was first received."""

    group_ids: tuple[str, ...]
    lease_id: str = ""
    token: int = 0
    ttl_s: float = 0.0
    waited_s: float = 0.0
    restored: bool = False


@dataclass(frozen=True)
class Call:
    """One call to make; `timeout` in seconds."""

    method: Method
    request: Any
    timeout: float


@dataclass(frozen=True)
class Want:
    """Who wants what. `timeout` is the caller's limit in seconds, None for none."""

    job_id: str
    group_ids: tuple[str, ...]
    timeout: float | None = None
    holder: str = ""


class Acquisition:
    """One request, from the first call to its grant. Repetitions carry the same request_id, so they keep its place.

    Args:
        want: who wants what.
        acquire: gives the orchestrator's method, anew for each call.
        registrations: calls to the node that must succeed before the first Acquire.
        on_wait: told after every bounded wait that did not end in a grant.
        process: this process as its node has named it; empty while it has not.
        on_process: told that name.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        want: Want,
        acquire: Callable[[], Method],
        *,
        registrations: tuple[Call, ...] = (),
        on_wait: Callable[[WaitStatus], None] | None = None,
        process: str = "",
        on_process: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.request_id = str(uuid.uuid4())
        self.may_be_queued = False  # the orchestrator may know the request, so it must be withdrawn
        self._want, self._acquire, self._on_wait = want, acquire, on_wait
        self._registrations = list(registrations)
        self._process, self._on_process = process, on_process
        self._clock, self._began = clock, clock()
        self._asked, self._asked_at = 0, self._began
        self._failures = 0
        self._failure: TimesliceError | None = None
        self._waiting = ""  # why, as the orchestrator last told
        self._progress = ProgressLine()

    @property
    def registering(self) -> bool:
        """Whether the node must be told first."""
        return bool(self._registrations)

    def next_call(self) -> Call:
        """What to ask now.

        Raises:
            AcquireTimeout: the caller's time limit has passed.
        """
        left = self._left()
        if left is not None and left <= 0 and (self._asked or self._failure):
            raise self._timeout() from self._failure
        if self._registrations:
            call = self._registrations[0]
            return call if left is None else Call(call.method, call.request, min(call.timeout, left + CALLER_MARGIN_S))
        self.may_be_queued, self._asked_at = True, self._clock()
        slice_s = SLICES_S[min(self._asked, len(SLICES_S) - 1)]
        wait_s = slice_s if left is None else max(0.0, min(slice_s, left))
        limit = wait_s + MARGIN_S if left is None else min(wait_s + MARGIN_S, max(0.0, left) + CALLER_MARGIN_S)
        return Call(self._acquire(), self._request(wait_s), limit)

    def answered(self, answer: Any) -> Grant | None:
        """The grant, or None when the next call is due.

        A process that was stopped, or a machine that slept, may find a grant that has been waiting for longer than a
        lease lives without being renewed. Only the orchestrator knows whether it is still one, so it is asked again.
        """
        self._failures, self._failure, self._waiting = 0, None, ""
        if isinstance(answer, snapshot_agent_pb2.RegisterResponse):
            self._registrations.pop(0)
            if answer.process:
                self._process = answer.process
                self._on_process(answer.process)
            return None
        self._asked += 1
        if answer.WhichOneof("outcome") == "lease":
            lease = answer.lease
            if 0 < lease.ttl_s < self._clock() - self._asked_at:
                return None
            groups = tuple(sorted(lease.group_ids)) or self._want.group_ids
            return Grant(groups, lease.lease_id, lease.fencing_token, lease.ttl_s, answer.waited_s, answer.restored)
        waiting = answer.waiting
        self._tell(
            position=waiting.position,
            holder_job_id=waiting.holder_job_id,
            held_s=waiting.held_s,
            reason=waiting.reason,
        )
        return None

    def failed(self, rpc_error: grpc.RpcError) -> float:
        """How long to pause before the next call (seconds).

        Raises:
            TimesliceError: repeating cannot help.
        """
        error = from_rpc(rpc_error)
        if isinstance(error, RequestEnded):
            self.request_id = str(uuid.uuid4())  # a grant that nobody heard of ran out: stand in line again
        elif not error.retryable:
            self.may_be_queued = False  # a refusal ends the request
            raise error from rpc_error
        self._failures, self._failure = self._failures + 1, error
        self._tell(reason=str(error))
        pause = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures - 1, 10)) * random.uniform(0.5, 1.0)
        left = self._left()
        return pause if left is None else max(0.0, min(pause, left))

    def withdrawal(self) -> orchestrator_pb2.WithdrawRequest:
        """What takes the request out of the queue, or gives its lease back."""
        return orchestrator_pb2.WithdrawRequest(request_id=self.request_id, job_id=self._want.job_id)

    def _request(self, wait_s: float) -> orchestrator_pb2.AcquireRequest:
        groups = self._want.group_ids
        return orchestrator_pb2.AcquireRequest(
            request_id=self.request_id,
            job_id=self._want.job_id,
            group_id=groups[0] if len(groups) == 1 else "",
            group_ids=groups if len(groups) > 1 else (),
            wait_s=wait_s,
            holder=self._want.holder,
            process=self._process,
        )

    def _left(self) -> float | None:
        return None if self._want.timeout is None else self._began + self._want.timeout - self._clock()

    def _tell(self, *, position: int = 0, holder_job_id: str = "", held_s: float = 0.0, reason: str = "") -> None:
        waited_s = self._clock() - self._began
        status = WaitStatus(self._want.group_ids, waited_s, position, holder_job_id, held_s, reason)
        self._waiting = status.why
        self._progress.show(status)
        if self._on_wait is not None:
            self._on_wait(status)

    def _timeout(self) -> AcquireTimeout:
        groups = " and ".join(self._want.group_ids)
        message = f"{groups} was not granted to {self._want.job_id} within {self._want.timeout:g} s"
        if self._waiting:
            message = f"{message}: {self._waiting}"
        return AcquireTimeout(message, job_id=self._want.job_id, group_id=groups)
