"""What can happen to the core. Events that a client caused may be refused by an exception from timeslice_api.errors;
then the state is as before. Events from nodes are facts and are never refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from timeslice_orchestrator.core.model import (
    Fault,
    GroupId,
    GroupSpec,
    JobId,
    LeaseId,
    MemberKey,
    NodeName,
    PartReport,
    RequestId,
)


@dataclass(frozen=True)
class AcquireRequested:
    """A client asks, or asks again. Attaches a client to the request. `process` is who asks, if its node has named it:
    when the node tells of its end, what it waits for or holds ends too."""

    request_id: RequestId
    job_id: JobId
    group_ids: tuple[GroupId, ...]
    holder: str = ""
    process: str = ""


@dataclass(frozen=True)
class WaiterDetached:
    """The client of a request is gone, or its bounded wait has ended; it may come back within the grace."""

    request_id: RequestId


@dataclass(frozen=True)
class Withdrawn:
    """A client takes its request, or the lease it became, back."""

    request_id: RequestId
    job_id: JobId


@dataclass(frozen=True)
class Yielded:
    """A client gives a lease back."""

    lease_id: LeaseId
    job_id: JobId


@dataclass(frozen=True)
class LeasesRenewed:
    """A client lives and still holds."""

    job_id: JobId
    lease_ids: tuple[LeaseId, ...]


@dataclass(frozen=True)
class ForceReleased:
    """An admin takes a job's leases in a group away; an empty job means whoever holds."""

    group_id: GroupId
    job_id: JobId = ""


@dataclass(frozen=True)
class Drained:
    """An admin stops further grants in a group."""

    group_id: GroupId


@dataclass(frozen=True)
class Resumed:
    """An admin ends a drain."""

    group_id: GroupId


@dataclass(frozen=True)
class ResetRequested:
    """An admin wants a job out of quarantine, in one group or, with an empty one, in all."""

    reset_id: str
    job_id: JobId
    group_id: GroupId = ""


@dataclass(frozen=True)
class GroupsChanged:
    """The whole set of groups, as discovery knows it now."""

    groups: tuple[GroupSpec, ...]


@dataclass(frozen=True)
class NodeConnected:
    """A node's hello: every part on it, as it is now. `highest_token` is the newest that the node ever saw."""

    node: NodeName
    parts: tuple[PartReport, ...] = ()
    highest_token: int = 0


@dataclass(frozen=True)
class NodeLost:
    """The link to a node broke. Nothing changes on the node by that."""

    node: NodeName


@dataclass(frozen=True)
class PartsReported:
    """Parts of a node that changed by themselves, and members and processes that ended there."""

    node: NodeName
    parts: tuple[PartReport, ...] = ()
    ended: tuple[MemberKey, ...] = ()
    ended_processes: tuple[str, ...] = ()


@dataclass(frozen=True)
class CommandDone:
    """A node's result: the parts that the command named, as they are now; one that is missing has ended."""

    node: NodeName
    command_id: int
    parts: tuple[PartReport, ...] = ()
    refused: Fault | None = None


@dataclass(frozen=True)
class Tick:
    """Time has passed; sent when the moment of the last `WakeAt` has come."""


Event: TypeAlias = (
    AcquireRequested
    | WaiterDetached
    | Withdrawn
    | Yielded
    | LeasesRenewed
    | ForceReleased
    | Drained
    | Resumed
    | ResetRequested
    | GroupsChanged
    | NodeConnected
    | NodeLost
    | PartsReported
    | CommandDone
    | Tick
)
