"""A small world around the core: nodes that hold the truth and obey commands, clients, a store and a clock.

Messages between a node and the core keep their order per node and wait to be delivered; `run` delivers all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from timeslice_api.errors import TimesliceError
from timeslice_orchestrator.core.effects import (
    Drop,
    Effect,
    Granted,
    GroupChanged,
    LeasesChecked,
    LeasesEnded,
    Refused,
    ResetDone,
    Save,
    SendCommand,
    WakeAt,
    WithdrawAccepted,
    YieldAccepted,
)
from timeslice_orchestrator.core.events import (
    AcquireRequested,
    CommandDone,
    Event,
    GroupsChanged,
    LeasesRenewed,
    NodeConnected,
    NodeLost,
    PartsReported,
    Tick,
    WaiterDetached,
    Withdrawn,
    Yielded,
)
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.core.model import (
    Fault,
    GroupSpec,
    Lease,
    MemberKey,
    PartReport,
    PartState,
    Record,
    Settings,
    Timings,
    WaitingView,
    key_of,
)

EMPTY, RUNNING, LOCKED, PARKED, FAILED = PartState
ONE = {"g": {"n1": ["d1"]}}  # groups, their nodes and devices
TWO = {"g": {"n1": ["d1"]}, "h": {"n1": ["d2"]}}
SETTINGS = Settings(restart_grace_s=0.0)
BUSY = Fault("LockTimeout", "its kernels run on", retryable=True)
NO_MEMORY = Fault("HostMemory", "needs 4 GB, has 1 GB", "raise the limit", retryable=False)


@dataclass
class SimPart:
    """The truth about a part; `resident` and `mute` (the driver gave no answer) matter for FAILED only."""

    devices: frozenset[str]
    state: PartState = EMPTY
    resident: bool = False
    fault: Fault | None = None
    mute: bool = False

    @property
    def on_devices(self) -> bool:
        return self.state in (RUNNING, LOCKED) or (self.state is FAILED and self.resident)


@dataclass
class Breakage:
    """What goes wrong once, when a part is brought into `at`; without a fault the part fails for good."""

    at: PartState
    fault: Fault | None = None
    resident: bool = False


@dataclass
class SimNode:
    """A node: it runs commands in their order and answers with the truth."""

    name: str
    parts: dict[MemberKey, SimPart] = field(default_factory=dict)
    breakages: dict[MemberKey, Breakage] = field(default_factory=dict)
    connected: bool = True
    inbox: deque[SendCommand] = field(default_factory=deque)
    outbox: deque[Event] = field(default_factory=deque)
    tokens: list[int] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)

    def report(self, key: MemberKey, timings: Timings | None = None) -> PartReport:
        part, took = self.parts[key], timings or Timings()
        return PartReport(key, part.devices, part.state, part.on_devices, part.fault, 1000, 1, took)

    def execute(self) -> None:
        """Runs the oldest command: what moves off the devices first, all locked before any is parked."""
        command = self.inbox.popleft()
        assert not self.tokens or command.token > self.tokens[-1], "tokens of commands must rise"
        self.tokens.append(command.token)
        here = [(key, target) for key, target in command.targets if key in self.parts]
        if any(target is None for _, target in here):
            self._look(command)
            return
        targets = {key: target for key, target in here if target}
        for part in map(self.parts.__getitem__, targets):
            part.fault = None
        away = [key for key, target in targets.items() if target is PARKED or self.parts[key].state is RUNNING]
        locks_held = all(self._to(key, LOCKED) for key in away if self.parts[key].state is RUNNING)
        if locks_held:
            for key in away:
                self._to(key, targets[key])
            for key in [key for key in targets if key not in away]:
                self._restore(key, targets[key])
        else:
            for key in away:
                if self.parts[key].state is LOCKED:
                    self._to(key, RUNNING)
        took = Timings(0.5, 1.0, 2.0, 0.25)
        reports = tuple(self.report(key, took) for key in targets)
        self.outbox.append(CommandDone(self.name, command.command_id, reports))

    def _look(self, command: SendCommand) -> None:
        """The driver tells the truth: what it only gave no answer about is parked, in fact."""
        keys = [key for key, _ in command.targets if key in self.parts]
        for part in map(self.parts.__getitem__, keys):
            if part.state is FAILED and part.mute:
                part.state, part.fault, part.mute = PARKED, None, False
        reports = tuple(map(self.report, keys))
        self.outbox.append(CommandDone(self.name, command.command_id, reports))

    def _restore(self, key: MemberKey, target: PartState) -> None:
        part = self.parts[key]
        others = [
            k for k, p in self.parts.items() if k.job_id != key.job_id and p.on_devices and p.devices & part.devices
        ]
        if others:
            assert part.state is PARKED
            part.fault = Fault("DeviceMemory", f"{others[0].job_id} is there", retryable=True)
        elif self._to(key, LOCKED):
            self._to(key, target)

    def _to(self, key: MemberKey, target: PartState) -> bool:
        part = self.parts[key]
        if part.state in (EMPTY, FAILED, target):
            return part.state is not FAILED
        broken = self.breakages.get(key)
        if broken and broken.at is target:
            del self.breakages[key]
            part.fault = broken.fault or Fault("Poisoned", "the driver gave up")
            if not broken.fault:
                part.state, part.resident = FAILED, broken.resident
            return False
        assert {part.state, target} != {RUNNING, PARKED}, "one step at a time"
        self.log.append((key.job_id, target.value))
        part.state = target
        return True


class World:
    """The core, its nodes, clients and store.

    `groups` is {group: {node: [devices]}}; all nodes are connected and empty at the start.
    """

    def __init__(
        self,
        groups: Mapping[str, Mapping[str, Iterable[str]]],
        settings: Settings = SETTINGS,
        jobs: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        self.settings = settings
        self.now = 0.0
        self.store: dict[object, Record] = {}
        self.specs = {
            name: GroupSpec(name, tuple((d, n) for n, ds in nodes.items() for d in ds), (jobs or {}).get(name))
            for name, nodes in groups.items()
        }
        self.nodes = {node: SimNode(node) for nodes in groups.values() for node in nodes}
        self.commands: list[SendCommand] = []
        self.leases: dict[str, Lease] = {}
        self.grants: list[Granted] = []
        self.refused: dict[str, TimesliceError] = {}
        self.lost: dict[str, str] = {}
        self.resets: dict[str, ResetDone] = {}
        self.wake_at: float | None = None
        self._ids = 0
        self.core = Core(settings)
        self.do(GroupsChanged(tuple(self.specs.values())))
        for node in self.nodes:
            self.do(NodeConnected(node))

    # what happens

    def do(self, event: Event) -> list[Effect]:
        effects = self.core.step(event, self.now)
        for effect in effects:
            self._carry_out(effect)
        self.resets |= {effect.reset_id: effect for effect in effects if isinstance(effect, ResetDone)}
        return effects

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Save(record):
                self.store[key_of(record)] = record
            case Drop(record):
                self.store.pop(key_of(record), None)
            case SendCommand():
                assert self.nodes[effect.node].connected, "a command to a node that is not there"
                self.commands.append(effect)
                self.nodes[effect.node].inbox.append(effect)
            case Granted():
                self.on_grant(effect)
            case Refused(request_id, error):
                self.on_refusal(request_id, error)
            case LeasesEnded(lease_ids, _, reason):
                for lease_id in lease_ids:
                    self.on_loss(lease_id.removeprefix("lease-"), reason)
            case WakeAt(at):
                self.wake_at = at
            case YieldAccepted() | WithdrawAccepted() | LeasesChecked() | ResetDone() | GroupChanged():
                pass

    def on_grant(self, granted: Granted) -> None:
        self.grants.append(granted)
        self.leases[granted.request_id] = granted.lease

    def on_refusal(self, request_id: str, error: TimesliceError) -> None:
        self.refused[request_id] = error

    def on_loss(self, request_id: str, reason: str) -> None:
        del self.leases[request_id]
        self.lost[request_id] = reason

    def until(self, now: float) -> None:
        """Lets time pass, with the ticks that the core wants."""
        while self.wake_at is not None and self.wake_at <= now:
            self.now, self.wake_at = max(self.now, self.wake_at), None
            self.do(Tick())
        self.now = now

    # clients

    def acquire(self, job: str, *groups: str, request: str = "", holder: str = "", process: str = "") -> str:
        self._ids += not request
        request = request or f"r{self._ids}"
        self.do(AcquireRequested(request, job, groups, holder, process))
        return request

    def hold(self, job: str, *groups: str) -> str:
        """Acquires, lets the nodes work, and puts the job's state onto the devices."""
        request = self.acquire(job, *groups)
        self.run()
        self.use(request)
        return request

    def use(self, request: str) -> None:
        lease = self.leases[request]
        for node in self.nodes.values():
            for key, part in node.parts.items():
                if key.job_id == lease.job_id and part.state is EMPTY and part.devices <= lease.devices:
                    part.state = RUNNING

    def yield_(self, request: str) -> YieldAccepted:
        lease = self.leases.pop(request)
        effects = self.do(Yielded(lease.lease_id, lease.job_id))
        return next(effect for effect in effects if isinstance(effect, YieldAccepted))

    def withdraw(self, request: str, job: str) -> bool:
        self.leases.pop(request, None)
        effects = self.do(Withdrawn(request, job))
        return next(effect.withdrawn for effect in effects if isinstance(effect, WithdrawAccepted))

    def renew(self, *requests: str) -> LeasesChecked:
        leases = [self.leases[request] for request in requests]
        effects = self.do(LeasesRenewed(leases[0].job_id, tuple(lease.lease_id for lease in leases)))
        return next(effect for effect in effects if isinstance(effect, LeasesChecked))

    def detach(self, request: str) -> None:
        self.do(WaiterDetached(request))

    def holds(self, request: str) -> bool:
        return request in self.leases

    def waits(self, request: str) -> WaitingView:
        return self.core.waiting(request, self.now)

    # nodes

    def join(self, job: str, group: str, **devices: Iterable[str]) -> None:
        """A member's processes appear, given as node=[devices]."""
        for node, names in devices.items():
            key = MemberKey(job, group)
            self.nodes[node].parts[key] = SimPart(frozenset(names))
            self.do(PartsReported(node, (self.nodes[node].report(key),)))

    def kill(self, job: str, group: str, node: str) -> None:
        del self.nodes[node].parts[MemberKey(job, group)]
        self.do(PartsReported(node, ended=(MemberKey(job, group),)))

    def break_(self, job: str, group: str, node: str, breakage: Breakage) -> None:
        self.nodes[node].breakages[MemberKey(job, group)] = breakage

    def lose(self, node: str) -> None:
        """The link breaks; commands and answers that were on their way are lost with it."""
        sim = self.nodes[node]
        sim.connected = False
        sim.inbox.clear()
        sim.outbox.clear()
        self.do(NodeLost(node))

    def connect(self, node: str) -> None:
        sim = self.nodes[node]
        sim.connected = True
        sim.inbox.clear()
        sim.outbox.clear()
        hello = tuple(map(sim.report, sim.parts))
        self.do(NodeConnected(node, hello, max(sim.tokens, default=0)))

    def deliver(self, node: str) -> None:
        """The oldest answer of a node arrives."""
        self.do(self.nodes[node].outbox.popleft())

    def answer(self, *nodes: str) -> None:
        """Nodes run one command each and their answers arrive."""
        for node in nodes:
            self.nodes[node].execute()
            self.deliver(node)

    def run(self) -> None:
        """All nodes do all that they were told, until it is quiet."""
        for _ in range(1000):
            busy = [node for node in self.nodes.values() if node.inbox or node.outbox]
            if not busy:
                return
            for node in busy:
                while node.outbox:
                    self.deliver(node.name)
                while node.inbox:
                    node.execute()
        raise AssertionError("the nodes never come to rest")

    def state(self, job: str, group: str, node: str) -> PartState:
        return self.nodes[node].parts[MemberKey(job, group)].state

    # the orchestrator

    def change_groups(self, *specs: GroupSpec) -> None:
        self.specs = {spec.group_id: spec for spec in specs}
        self.do(GroupsChanged(specs))

    def limit(self, group: str, *jobs: str) -> None:
        self.change_groups(*({**self.specs, group: replace(self.specs[group], jobs=frozenset(jobs))}).values())

    def restart(self, *, connect: bool = True) -> None:
        """The orchestrator ends and starts anew from its store; its nodes say hello."""
        self.wake_at = None
        self.core = Core(self.settings, list(self.store.values()), self.now)
        self.do(GroupsChanged(tuple(self.specs.values())))
        for node in self.nodes.values():
            node.inbox.clear()
            node.outbox.clear()
            if connect and node.connected:
                self.connect(node.name)
