"""What clients may send: each field is checked, and an error names it."""

from __future__ import annotations

import math
import uuid

from timeslice_api.errors import InvalidRequest
from timeslice_api.names import MAX_WAIT_S, checked_name, checked_process
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb

from timeslice_orchestrator.core.events import (
    AcquireRequested,
    Drained,
    ForceReleased,
    LeasesRenewed,
    ResetRequested,
    Resumed,
    Withdrawn,
    Yielded,
)

_MAX_REQUEST_ID = 128  # characters
_MAX_LEASE_ID = 192  # the core makes them, of request ids
_MAX_HOLDER = 253
_MAX_GROUPS = 64
_MAX_LEASES = 1024


def acquire(request: pb.AcquireRequest) -> AcquireRequested:
    """The event of an Acquire. Raises InvalidRequest."""
    job_id = checked_name(request.job_id, "job_id")
    request_id = _checked_id(request.request_id, "request_id", _MAX_REQUEST_ID)
    if len(request.holder) > _MAX_HOLDER:
        raise InvalidRequest(f"holder has {len(request.holder)} characters; {_MAX_HOLDER} are allowed")
    if not request.holder.isprintable():
        raise InvalidRequest("holder has characters that cannot be printed")
    process = checked_process(request.process, "process") if request.process else ""
    return AcquireRequested(request_id, job_id, _group_ids(request), request.holder, process)


def wait_s(request: pb.AcquireRequest) -> float:
    """How long an Acquire may wait, bounded by the server's own limit. Raises InvalidRequest."""
    if not math.isfinite(request.wait_s) or request.wait_s < 0:
        raise InvalidRequest(f"wait_s is {request.wait_s}; it must be a number of seconds, 0 or more")
    return min(request.wait_s, MAX_WAIT_S)


def _group_ids(request: pb.AcquireRequest) -> tuple[str, ...]:
    if bool(request.group_id) == bool(request.group_ids):
        raise InvalidRequest("set exactly one of group_id and group_ids", job_id=request.job_id)
    if request.group_id:
        return (checked_name(request.group_id, "group_id"),)
    if len(request.group_ids) > _MAX_GROUPS:
        raise InvalidRequest(f"group_ids has {len(request.group_ids)} entries; {_MAX_GROUPS} are allowed")
    names = (checked_name(name, f"group_ids[{index}]") for index, name in enumerate(request.group_ids))
    return tuple(dict.fromkeys(names))


def yielded(request: pb.YieldRequest) -> Yielded:
    """The event of a Yield. Raises InvalidRequest."""
    return Yielded(_checked_id(request.lease_id, "lease_id", _MAX_LEASE_ID), checked_name(request.job_id, "job_id"))


def renewed(request: pb.KeepAliveRequest) -> LeasesRenewed:
    """The event of a KeepAlive. Raises InvalidRequest."""
    if len(request.lease_ids) > _MAX_LEASES:
        raise InvalidRequest(f"lease_ids has {len(request.lease_ids)} entries; {_MAX_LEASES} are allowed")
    lease_ids = (_checked_id(value, f"lease_ids[{n}]", _MAX_LEASE_ID) for n, value in enumerate(request.lease_ids))
    return LeasesRenewed(checked_name(request.job_id, "job_id"), tuple(lease_ids))


def withdrawn(request: pb.WithdrawRequest) -> Withdrawn:
    """The event of a Withdraw. Raises InvalidRequest."""
    return Withdrawn(
        _checked_id(request.request_id, "request_id", _MAX_REQUEST_ID), checked_name(request.job_id, "job_id")
    )


def force_released(request: pb.ForceReleaseRequest) -> ForceReleased:
    """The event of a ForceRelease. Raises InvalidRequest."""
    job_id = checked_name(request.job_id, "job_id") if request.job_id else ""
    return ForceReleased(checked_name(request.group_id, "group_id"), job_id)


def drained(request: pb.DrainRequest) -> Drained:
    """The event of a Drain. Raises InvalidRequest."""
    return Drained(checked_name(request.group_id, "group_id"))


def resumed(request: pb.ResumeRequest) -> Resumed:
    """The event of a Resume. Raises InvalidRequest."""
    return Resumed(checked_name(request.group_id, "group_id"))


def reset(request: pb.ResetRequest) -> ResetRequested:
    """The event of a Reset. Raises InvalidRequest."""
    group_id = checked_name(request.group_id, "group_id") if request.group_id else ""
    return ResetRequested(str(uuid.uuid4()), checked_name(request.job_id, "job_id"), group_id)


def _checked_id(value: str, field: str, longest: int) -> str:
    if not value:
        raise InvalidRequest(f"{field} is empty")
    if len(value) > longest:
        raise InvalidRequest(f"{field} has {len(value)} characters; {longest} are allowed")
    if not value.isprintable():
        raise InvalidRequest(f"{field} has characters that cannot be printed")
    return value
