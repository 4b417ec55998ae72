"""What the core wants done. A shell carries it out in order, all `Save`/`Drop` of a step durably before the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from timeslice_api.errors import TimesliceError

from timeslice_orchestrator.core.model import (
    GroupId,
    JobId,
    Lease,
    LeaseId,
    MemberKey,
    NodeName,
    PartState,
    Record,
    RequestId,
    Timings,
)


@dataclass(frozen=True)
class Granted:
    """The request has its lease. Sent again when a client asks again. `restored`: state was put back for it."""

    request_id: RequestId
    lease: Lease
    waited_s: float
    restored: bool


@dataclass(frozen=True)
class Refused:
    """The request has ended without a lease."""

    request_id: RequestId
    error: TimesliceError


@dataclass(frozen=True)
class YieldAccepted:
    """The lease is given back; `waiting` requests of other jobs want its devices."""

    lease_id: LeaseId
    waiting: int
    already_yielded: bool


@dataclass(frozen=True)
class WithdrawAccepted:
    """The request has left the queue or its lease was given back; `withdrawn` is False when it had ended before."""

    request_id: RequestId
    withdrawn: bool


@dataclass(frozen=True)
class LeasesChecked:
    """The answer to a renewal: which of the leases are lost, and which are wanted by another job."""

    lost: tuple[LeaseId, ...]
    wanted: tuple[LeaseId, ...]


@dataclass(frozen=True)
class LeasesEnded:
    """Leases that were taken away, and why (expired, force release)."""

    lease_ids: tuple[LeaseId, ...]
    job_id: JobId
    reason: str


@dataclass(frozen=True)
class ResetDone:
    """The answer to a `ResetRequested`: members that are in no quarantine any more, and why others are."""

    reset_id: str
    members: tuple[MemberKey, ...]
    error: TimesliceError | None = None


@dataclass(frozen=True)
class HandedOver:
    """A hand-off has come to its end: for which groups, after how many seconds, and how long its steps took on the
    slowest node of each group that it moved something of."""

    group_ids: tuple[GroupId, ...]
    seconds: float
    steps: tuple[tuple[GroupId, Timings], ...]


@dataclass(frozen=True)
class SendCommand:
    """Tell a node to bring parts into target states (RUNNING, LOCKED or PARKED), or, where the target is None, to ask
    the driver for the true state of a part and move nothing. The shell adds the epoch."""

    node: NodeName
    command_id: int
    token: int
    targets: tuple[tuple[MemberKey, PartState | None], ...]
    lock_timeout_s: float


@dataclass(frozen=True)
class Save:
    """Write a record durably; one with the same key is replaced."""

    record: Record


@dataclass(frozen=True)
class Drop:
    """Remove a record. The store need not have it: a step may drop what it has saved itself."""

    record: Record


@dataclass(frozen=True)
class WakeAt:
    """Send a `Tick` at this time of the clock that `now` comes from; replaces the last one."""

    at: float


@dataclass(frozen=True)
class GroupChanged:
    """The view of a group changed; wake its watchers."""

    group_id: GroupId


Effect: TypeAlias = (
    Granted
    | Refused
    | YieldAccepted
    | WithdrawAccepted
    | LeasesChecked
    | LeasesEnded
    | ResetDone
    | HandedOver
    | SendCommand
    | Save
    | Drop
    | WakeAt
    | GroupChanged
)
