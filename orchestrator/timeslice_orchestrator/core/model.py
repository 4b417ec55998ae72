"""The nouns of the core: groups, members, parts, leases, and the records that survive a restart."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

JobId: TypeAlias = str
GroupId: TypeAlias = str
DeviceId: TypeAlias = str
NodeName: TypeAlias = str
RequestId: TypeAlias = str
LeaseId: TypeAlias = str


class PartState(Enum):
    """Where the accelerator state of a part is; the transitions are CUDA's own (running, locked, parked)."""

    __hash__ = object.__hash__  # members are unique; Enum's own hash is Python code, and the tables are read often

    EMPTY = "empty"  # its processes have put nothing on the devices yet
    RUNNING = "running"  # resident, its accelerator calls run
    LOCKED = "locked"  # resident, its accelerator calls wait
    PARKED = "parked"  # in host memory
    FAILED = "failed"  # can go neither way


class MemberKey(NamedTuple):
    """A job in a group; the unit that is parked and restored."""

    job_id: JobId
    group_id: GroupId


@dataclass(frozen=True)
class Fault:
    """Why an operation on a part failed, as its node saw it."""

    reason: str
    message: str
    hint: str = ""
    retryable: bool = False


@dataclass(frozen=True)
class Timings:
    """Seconds that the steps of a command took on a node; 0 for steps that did not run."""

    lock_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0
    unlock_s: float = 0.0


@dataclass(frozen=True)
class PartReport:
    """What a node says of a member's share on it. `bytes_` is device memory saved, or in use while resident."""

    member: MemberKey
    devices: frozenset[DeviceId]
    state: PartState
    resident: bool
    fault: Fault | None = None
    bytes_: int = 0
    processes: int = 0
    timings: Timings = Timings()


@dataclass(frozen=True)
class LeaseTimes:
    """Seconds for the leases of a group; None: as in `Settings`. Of several groups the shortest count."""

    ttl_s: float | None = None
    grace_s: float | None = None


@dataclass(frozen=True)
class GroupSpec:
    """A named set of devices that jobs take turns on. `jobs` limits who may; None admits everybody."""

    group_id: GroupId
    devices: tuple[tuple[DeviceId, NodeName], ...]
    jobs: frozenset[JobId] | None = None
    lease: LeaseTimes = LeaseTimes()


@dataclass(frozen=True)
class Lease:
    """A granted acquire. `devices` are what it holds; tokens rise with every grant, for ever."""

    lease_id: LeaseId
    request_id: RequestId
    job_id: JobId
    group_ids: tuple[GroupId, ...]
    devices: frozenset[DeviceId]
    token: int
    ttl_s: float


@dataclass(frozen=True)
class RequestRecord:
    """A request that waits, as it is persisted."""

    request_id: RequestId
    job_id: JobId
    group_ids: tuple[GroupId, ...]
    ticket: int
    holder: str = ""


@dataclass(frozen=True)
class LeaseRecord:
    """A lease as it is persisted; after a restart its time to live starts anew."""

    lease: Lease


@dataclass(frozen=True)
class DrainRecord:
    """A group that gets no further grants."""

    group_id: GroupId


@dataclass(frozen=True)
class QuarantineRecord:
    """A member whose state can go neither way, and why."""

    member: MemberKey
    reason: str


@dataclass(frozen=True)
class CounterRecord:
    """The highest token and ticket that were given out."""

    token: int = 0
    ticket: int = 0


Record: TypeAlias = RequestRecord | LeaseRecord | DrainRecord | QuarantineRecord | CounterRecord
RecordKey: TypeAlias = tuple[str, str]


def key_of(record: Record) -> RecordKey:
    """Kind and name of a record: a later one with the same key replaces it, in a step as in the store."""
    match record:
        case RequestRecord():
            return "request", record.request_id
        case LeaseRecord():
            return "lease", record.lease.lease_id
        case DrainRecord():
            return "drain", record.group_id
        case QuarantineRecord():
            return "quarantine", f"{record.member.job_id} {record.member.group_id}"  # names have no spaces
        case _:
            return "counter", ""


@dataclass(frozen=True)
class Settings:
    """Time limits of the core, in seconds.

    Attributes:
        lease_ttl_s: a lease that is not renewed for so long is suspect.
        lease_grace_s: a suspect lease of a job whose processes live is kept for so long, then lost.
        waiter_grace_s: a waiter whose client is gone leaves the queue after so long.
        restart_grace_s: the same after a restart of the orchestrator, when every client has to find it again; and how
            long after a start a group may still become known that somebody asks for.
        lock_timeout_s: how long a node may try to lock the processes of a part.
        command_timeout_s: a node that has not answered a command for so long counts as stuck (shown as the reason; the
            command is not taken to have failed: only the node can say that).
        retry_min_s, retry_max_s: bounds of the backoff after a hand-off that was rolled back.
        max_waiting: requests that may wait in all.
    """

    lease_ttl_s: float = 30.0
    lease_grace_s: float = 30.0
    waiter_grace_s: float = 5.0
    restart_grace_s: float = 15.0
    lock_timeout_s: float = 30.0
    command_timeout_s: float = 120.0
    retry_min_s: float = 0.25
    retry_max_s: float = 10.0
    max_waiting: int = 20_000


@dataclass
class GroupTotals:
    """Sums over the finished hand-offs of a group since the core was made; seconds count the slowest node of each."""

    grants: int = 0
    handoffs: int = 0
    bytes_parked: int = 0
    bytes_restored: int = 0
    lock_s: float = 0.0
    checkpoint_s: float = 0.0
    restore_s: float = 0.0
    unlock_s: float = 0.0
    handoff_s: float = 0.0


@dataclass(frozen=True)
class Setback:
    """Why the last hand-off onto a device was rolled back; `job_id`: whose state met the fault; "": nobody's."""

    job_id: JobId
    fault: Fault


@dataclass(frozen=True)
class PartView:
    """A part as people see it."""

    node: NodeName
    state: PartState
    bytes_: int
    processes: int


@dataclass(frozen=True)
class MemberView:
    """A member as people see it."""

    job_id: JobId
    parts: tuple[PartView, ...]
    quarantine_reason: str = ""


@dataclass(frozen=True)
class HolderView:
    """A job that holds devices of the group."""

    job_id: JobId
    leases: int
    held_s: float
    token: int


@dataclass(frozen=True)
class WaiterView:
    """A request in the queue."""

    job_id: JobId
    request_id: RequestId
    position: int
    waited_s: float
    holder: str


@dataclass(frozen=True)
class GroupView:
    """A group as people see it, at one moment. `devices` are (device, node, node is connected); `under_way` is what the
    hand-off to `switching_to` waits for; `setbacks` keep those who wait from being served."""

    group_id: GroupId
    devices: tuple[tuple[DeviceId, NodeName, bool], ...]
    members: tuple[MemberView, ...] = ()
    holders: tuple[HolderView, ...] = ()
    waiters: tuple[WaiterView, ...] = ()
    switching_to: JobId = ""
    under_way: str = ""
    draining: bool = False
    blocked_reason: str = ""
    setbacks: tuple[Setback, ...] = ()
    duty_cycle: float = 0.0
    totals: GroupTotals = field(default_factory=GroupTotals)


@dataclass(frozen=True)
class WaitingView:
    """What a waiting request is told: its place, who has the devices and since when, why it is not served, and how long
    it has waited."""

    position: int
    holder_job_id: JobId
    held_s: float
    reason: str
    waited_s: float = 0.0
