"""What the core knows: its mutable records, each with the indexes that keep a step from scanning.

A device carries its queue, its parts, its holder and its hand-off, so a step looks only at the devices that it touches.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TypeAlias

from timeslice_api.errors import TimesliceError

from timeslice_orchestrator.core.model import (
    CounterRecord,
    DeviceId,
    Fault,
    GroupId,
    GroupSpec,
    GroupTotals,
    JobId,
    Lease,
    MemberKey,
    NodeName,
    PartState,
    RequestId,
    RequestRecord,
    Setback,
    Settings,
)
from timeslice_orchestrator.core.outbox import Outbox
from timeslice_orchestrator.core.tables import STAGE_MOVES, End, Phase, Role, Stage

NEVER = math.inf
ENDED_KEPT = 16_384  # ended requests that are remembered, so that late repetitions are told the truth


class IllegalMoveError(Exception):
    """A defect of the core itself: a transition that its tables do not have."""


@dataclass(slots=True, eq=False)
class Part:
    """A member's share on one node. `assumed`: its job was granted while EMPTY, so it may be resident by now."""

    member: Member
    node: Node
    devices: frozenset[DeviceId]
    state: PartState
    resident: bool
    assumed: bool = False
    fault: Fault | None = None
    bytes_: int = 0
    processes: int = 0


@dataclass(slots=True, eq=False)
class Member:
    """A job in a group. It is kept while it has parts, or a quarantine."""

    key: MemberKey
    parts: dict[NodeName, Part] = field(default_factory=dict)
    devices: tuple[Device, ...] = ()
    quarantine: str = ""


@dataclass(slots=True, eq=False)
class Node:
    """A machine with an agent. `heard`: it has said hello since the core was made."""

    name: NodeName
    connected: bool = False
    heard: bool = False
    devices: dict[DeviceId, Device] = field(default_factory=dict)
    parts: dict[MemberKey, Part] = field(default_factory=dict)
    handoffs: dict[Handoff, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Device:
    """An accelerator: who holds it (by how many leases), who waits (by ticket), whose parts cover it.

    `failures`, `retry_at` and `setback` tell of hand-offs onto it that were rolled back since the last good one.
    """

    device_id: DeviceId
    node: Node | None = None
    group_id: GroupId = ""
    queue: list[Request] = field(default_factory=list)
    jobs: dict[JobId, int] = field(default_factory=dict)  # how many in the queue are whose
    parts: dict[tuple[MemberKey, NodeName], Part] = field(default_factory=dict)
    holder: JobId = ""
    holds: int = 0
    held_since: float = 0.0
    held_s: float = 0.0
    held_in: GroupId = ""  # the group that `held_s` is of: on Kubernetes a device goes from group to group
    handoff: Handoff | None = None
    failures: int = 0
    retry_at: float = -NEVER
    setback: Setback | None = None


@dataclass(slots=True, eq=False)
class Group:
    """A group; without a spec it is only a name that a record or a node gave."""

    group_id: GroupId
    spec: GroupSpec | None = None
    devices: tuple[Device, ...] = ()
    nodes: tuple[Node, ...] = ()
    members: dict[MemberKey, Member] = field(default_factory=dict)
    waiting: dict[int, Request] = field(default_factory=dict)
    draining: bool = False
    first_grant_at: float = NEVER
    totals: GroupTotals = field(default_factory=GroupTotals)


@dataclass(slots=True, eq=False)
class Job:
    """What a job has in the queue and holds; kept while it has either."""

    waiting: dict[int, Request] = field(default_factory=dict)
    held: dict[RequestId, Request] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Request:
    """An acquire from its arrival to its end. `due` is when its stage must be looked at; `process` is who asked, as its
    node names it, or empty. It is not kept over a restart: a waiter tells it again, a lease then lives by its time."""

    record: RequestRecord
    stage: Stage
    arrived_at: float
    wants: tuple[Device, ...] = ()
    due: float = NEVER
    timer: float = NEVER
    restored: bool = False
    lease: Lease | None = None
    waited_s: float = 0.0
    granted_at: float = 0.0
    granted_after: int = 0  # the newest ticket when it was granted; later ones were asked for while it was held
    had_parts: bool = False
    process: str = ""

    def go(self, stage: Stage) -> None:
        """Enters a stage; IllegalMoveError when the table does not have that."""
        if (self.stage, stage) not in STAGE_MOVES:
            raise IllegalMoveError(f"request {self.record.request_id}: {self.stage.value} -> {stage.value}")
        self.stage = stage


@dataclass(frozen=True, slots=True)
class Sent:
    """A command that a node has not answered yet, and how the parts were when it was sent."""

    command_id: int
    targets: tuple[tuple[MemberKey, PartState], ...]
    was: dict[MemberKey, PartState]
    at: float


@dataclass(slots=True, eq=False)
class Handoff:
    """A hand-off under way. `before` names all its parts and how they were at its start."""

    request: Request
    roles: dict[MemberKey, Role]
    before: dict[tuple[MemberKey, NodeName], PartState]
    devices: tuple[Device, ...]
    busy: tuple[Device, ...]
    nodes: tuple[Node, ...]
    started_at: float
    phase: Phase = Phase.LOCK
    backward: bool = False
    pending: dict[NodeName, Sent] = field(default_factory=dict)
    fault: Fault | None = None
    culprit: MemberKey | None = None
    refuses: bool = False
    given_up: set[tuple[MemberKey, NodeName]] = field(default_factory=set)
    spent: dict[tuple[GroupId, NodeName], tuple[float, float, float, float]] = field(default_factory=dict)
    moved: list[tuple[GroupId, Role, int]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a request ended, and for a refused one the error, for those who ask again."""

    job_id: JobId
    how: End
    error: TimesliceError | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A node that was asked for the true state of some members' parts."""

    node: Node
    members: tuple[MemberKey, ...]


@dataclass(slots=True, eq=False)
class Reset:
    """A reset under way: of which members, who has not answered yet (by command), and what went wrong."""

    reset_id: str
    members: tuple[MemberKey, ...]
    pending: dict[int, Asked] = field(default_factory=dict)
    error: TimesliceError | None = None


Subject: TypeAlias = Request | Handoff | None


class Books:
    """All that the core knows, at the time `now` of the present step."""

    def __init__(self, settings: Settings, now: float) -> None:
        self.settings = settings
        self.now = now
        self.started_at = now
        self.devices: dict[DeviceId, Device] = {}
        self.nodes: dict[NodeName, Node] = {}
        self.groups: dict[GroupId, Group] = {}
        self.members: dict[MemberKey, Member] = {}
        self.jobs: dict[JobId, Job] = {}
        self.requests: dict[RequestId, Request] = {}
        self.processes: dict[str, dict[Request, None]] = {}  # who asked for what
        self.entangled: dict[JobId, None] = {}  # jobs that hold and wait; without one there is no deadlock
        self.waiting = 0
        self.ended: OrderedDict[RequestId, Ended] = OrderedDict()
        self.commands: dict[int, tuple[Handoff, NodeName]] = {}
        self.resets: dict[int, Reset] = {}  # by the commands that ask for states
        self.out = Outbox()
        self.dirty: dict[Device, None] = {}  # devices whose first in line may have become servable
        self.again: dict[int, Request] = {}  # requests that may have
        self._token = self._ticket = self._command_id = 0
        self._timers: list[tuple[float, int, Subject]] = []
        self._timers_made = 0

    def device(self, device_id: DeviceId) -> Device:
        """The device of that name, made when it is new."""
        found = self.devices.get(device_id)
        if found is None:
            found = self.devices[device_id] = Device(device_id)
        return found

    def node(self, name: NodeName) -> Node:
        """The node of that name, made when it is new."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = Node(name)
        return found

    def group(self, group_id: GroupId) -> Group:
        """The group of that name, made without a spec when it is new."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = Group(group_id)
        return found

    def member(self, key: MemberKey) -> Member:
        """The member of that key, made when it is new."""
        found = self.members.get(key)
        if found is None:
            found = self.members[key] = self.group(key.group_id).members[key] = Member(key)
        return found

    def job(self, job_id: JobId) -> Job:
        """The job of that name, made when it is new."""
        found = self.jobs.get(job_id)
        if found is None:
            found = self.jobs[job_id] = Job()
        return found

    def job_changed(self, job_id: JobId) -> None:
        """Keeps the books on a job whose requests or leases have changed."""
        job = self.jobs[job_id]
        if job.waiting and job.held:
            self.entangled[job_id] = None
        else:
            self.entangled.pop(job_id, None)
        if not job.waiting and not job.held:
            del self.jobs[job_id]

    def next_token(self) -> int:
        """A token above all others, saved with this step."""
        self._token += 1
        self._save_counters()
        return self._token

    def last_ticket(self) -> int:
        """The newest ticket."""
        return self._ticket

    def next_ticket(self) -> int:
        """A ticket behind all others, saved with this step."""
        self._ticket += 1
        self._save_counters()
        return self._ticket

    def raise_token(self, token: int) -> None:
        """Goes above a token that a node has seen."""
        if token > self._token:
            self._token = token
            self._save_counters()

    def restore_counters(self, *, token: int = 0, ticket: int = 0) -> None:
        """Goes above tokens and tickets that the store knows of."""
        self._token, self._ticket = max(self._token, token), max(self._ticket, ticket)

    def next_command_id(self) -> int:
        """An id that rises within the life of this core."""
        self._command_id += 1
        return self._command_id

    def _save_counters(self) -> None:
        self.out.save(CounterRecord(self._token, self._ticket))

    def wake(self, at: float, subject: Subject) -> None:
        """Has the subject looked at when the time has come."""
        self._timers_made += 1
        heapq.heappush(self._timers, (at, self._timers_made, subject))

    def next_wake(self) -> float:
        """When the earliest timer is due; NEVER without one."""
        return self._timers[0][0] if self._timers else NEVER

    def due(self) -> list[Subject]:
        """Takes out all that is due now."""
        found = []
        while self._timers and self._timers[0][0] <= self.now:
            found.append(heapq.heappop(self._timers)[2])
        return found

    def set_due(self, request: Request, at: float) -> None:
        """Moves a request's time; a timer that is already set earlier serves for the later time too."""
        request.due = at
        if at < request.timer:
            request.timer = at
            self.wake(at, request)

    def asked_by(self, request: Request, process: str) -> None:
        """Notes which process has asked for a request; empty: none any more."""
        if request.process:
            mine = self.processes[request.process]
            del mine[request]
            if not mine:
                del self.processes[request.process]
        request.process = process
        if process:
            self.processes.setdefault(process, {})[request] = None

    def remember(self, request_id: RequestId, ended: Ended) -> None:
        """Keeps how a request ended, the newest ENDED_KEPT of them."""
        self.ended[request_id] = ended
        self.ended.move_to_end(request_id)
        if len(self.ended) > ENDED_KEPT:
            self.ended.popitem(last=False)
