"""The errors of Timeslice: one small hierarchy, shared by client, orchestrator and node.

Each class knows its gRPC status (by name, so that pure code can raise it), whether repeating the same call can help,
and the hint that a person needs. `timeslice_api.status` carries them over the wire and back.
"""

# ruff: noqa: N818 - the names say what is wrong (GroupNotFound, LeaseLost); "Error" behind each would add nothing

from __future__ import annotations

from typing import ClassVar


class TimesliceError(Exception):
    """Base of all errors that Timeslice raises.

    Args:
        message: one sentence that names the field or object at fault.
        hint: what to do about it; the class has a default.
        job_id, group_id: what it is about, where that is known.
    """

    code: ClassVar[str] = "INTERNAL"
    retryable: bool = False
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str = "", job_id: str = "", group_id: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.job_id = job_id
        self.group_id = group_id

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class InvalidRequest(TimesliceError):
    """A field of a request, an option or a file is missing, malformed or out of range. Nothing was changed."""

    code = "INVALID_ARGUMENT"


class ConfigError(InvalidRequest):
    """The client's or a program's own configuration is incomplete or contradicts itself."""


class GroupNotFound(TimesliceError):
    """No group of that name is known."""

    code = "NOT_FOUND"
    default_hint = "`timeslice status` lists the groups; a groups file or a registered node brings new ones"


class JobNotFound(TimesliceError):
    """No job of that name is known where one is needed."""

    code = "NOT_FOUND"


class JobNotAdmitted(TimesliceError):
    """The group has a list of jobs and this one is not on it."""

    code = "PERMISSION_DENIED"
    default_hint = "add the job to the group's `jobs`, or correct TIMESLICE_JOB_ID"


class Unauthenticated(TimesliceError):
    """The call came over the network and does not say who makes it, or what it says is not vouched for."""

    code = "UNAUTHENTICATED"
    default_hint = "set TIMESLICE_TOKEN_FILE, or --token-file, to a file with a token that the orchestrator knows"


class Forbidden(TimesliceError):
    """The caller is known, and may not do this; the message says what it may."""

    code = "PERMISSION_DENIED"


class NotHolder(TimesliceError):
    """The lease belongs to another job, or was never granted."""

    code = "FAILED_PRECONDITION"
    default_hint = "yield only what this client acquired"


class LeaseLost(TimesliceError):
    """The lease was taken away: it was not renewed in time, or was released by force. The job's state is safe, its
    accelerator calls wait until it acquires again."""

    code = "ABORTED"
    default_hint = "acquire again; if this repeats, look for pauses of the process longer than the lease's time to live"


class RequestEnded(TimesliceError):
    """The request_id was used for a request that has ended; a late repetition must not get a second lease."""

    code = "FAILED_PRECONDITION"
    default_hint = "make a new request_id for a new acquire"


class WouldDeadlock(TimesliceError):
    """Waiting for this group would close a cycle of jobs that wait for each other; the message names it."""

    code = "FAILED_PRECONDITION"
    default_hint = "acquire all groups that are held together in one call, or in the same order in every job"


class JobQuarantined(TimesliceError):
    """The job's state in a group can neither be parked nor put back; the message says why."""

    code = "FAILED_PRECONDITION"
    default_hint = "end the job's processes on that node and start it anew"


class QueueFull(TimesliceError):
    """Too many requests wait already."""

    code = "RESOURCE_EXHAUSTED"
    retryable = True


class Unavailable(TimesliceError):
    """The other side cannot be reached, or cannot answer now. Repeating is safe."""

    code = "UNAVAILABLE"
    retryable = True


class ConnectionLost(Unavailable):
    """No answer from the orchestrator or the node."""

    default_hint = "is it running, and is the address right? `timeslice up` starts one on this machine"


class TokenMissing(Unavailable):
    """The file with this program's token is not there, empty, or cannot be read. It may come."""

    default_hint = (
        "on Kubernetes the node writes it when the pod starts: look at its log; elsewhere name the right file"
    )


class Stopping(Unavailable):
    """The orchestrator is being stopped; it keeps the request's place for its successor."""


class StoreFailed(Unavailable):
    """The state could not be written to disk, so nothing was granted."""

    default_hint = "free space in the state directory"


class AcquireTimeout(TimesliceError, TimeoutError):
    """The caller's own time limit ended before the grant. The request has left the queue."""

    code = "DEADLINE_EXCEEDED"
    retryable = True


class ForkedClient(TimesliceError):
    """A client was used in a process that was forked from its owner."""

    code = "FAILED_PRECONDITION"
    default_hint = "make a client of its own in the child process"


class OperationFailed(TimesliceError):
    """A snapshot or restore did not reach its goal. `reason` is one stable word (LockTimeout, HostMemory, ...)."""

    code = "FAILED_PRECONDITION"

    def __init__(self, message: str, *, reason: str = "", hint: str = "", job_id: str = "", group_id: str = "") -> None:
        super().__init__(message, hint=hint, job_id=job_id, group_id=group_id)
        self.reason = reason


class OrchestratorInCharge(TimesliceError):
    """The node takes its commands from an orchestrator, so nobody else may park or restore there."""

    code = "FAILED_PRECONDITION"
    default_hint = "acquire and yield through the orchestrator, or start the node without one"


class JournalCorrupt(TimesliceError):
    """A file of our own cannot be read. It is kept aside under the name that the message gives."""

    code = "DATA_LOSS"


def _all(cls: type[TimesliceError]) -> dict[str, type[TimesliceError]]:
    found = {cls.__name__: cls}
    for sub in cls.__subclasses__():
        found |= _all(sub)
    return found


def by_name(kind: str) -> type[TimesliceError]:
    """The class of that name; `TimesliceError` for a name that this version does not know."""
    return _all(TimesliceError).get(kind, TimesliceError)
