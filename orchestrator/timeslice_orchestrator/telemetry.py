"""The orchestrator's figures for Prometheus. Labels are groups, steps and reasons, never jobs or requests: those are
many, and come and go. https://prometheus.io/docs/practices/naming/"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Counter, GCCollector, Histogram, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from timeslice_api.errors import Stopping
from timeslice_api.telemetry import TelemetryServer
from timeslice_api.tls import TlsFiles

from timeslice_orchestrator.core.effects import Drop, Effect, Granted, HandedOver, LeasesEnded, Save
from timeslice_orchestrator.core.events import CommandDone, Event, GroupsChanged, PartsReported
from timeslice_orchestrator.core.model import Fault, GroupId, GroupView, LeaseId, LeaseRecord, PartState
from timeslice_orchestrator.engine import Engine

_WAITS_S = (0.01, 0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_HOLDS_S = (0.1, 1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200)
_HANDOFFS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)  # a step of one, too
_WRITES_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)
_REASON = re.compile(r"[A-Z][A-Za-z]{0,40}")
_MAX_REASONS = 64
_OTHER = "Other"
_STEPS = ("lock", "checkpoint", "restore", "unlock")

Extra = Callable[[], Iterable[Metric]]


class Telemetry:
    """An observer of the engine, with a registry of its own for what it counts; `state` has what there is."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for process in (ProcessCollector, PlatformCollector, GCCollector):
            process(registry=self.registry)
        self._engine: Engine | None = None
        self._extra: Extra | None = None
        group = ("group",)
        self._waits = Histogram(
            "timeslice_wait_seconds",
            "Time from a request's arrival to its grant.",
            group,
            buckets=_WAITS_S,
            registry=self.registry,
        )
        self._holds = Histogram(
            "timeslice_hold_seconds",
            "Time from a grant to the end of its lease.",
            group,
            buckets=_HOLDS_S,
            registry=self.registry,
        )
        self._handoffs = Histogram(
            "timeslice_handoff_seconds",
            "Hand-offs, from the first command to the grant.",
            group,
            buckets=_HANDOFFS_S,
            registry=self.registry,
        )
        self._steps = Histogram(
            "timeslice_handoff_step_seconds",
            "Time that a step of a hand-off took on the slowest node.",
            ("group", "step"),
            buckets=_HANDOFFS_S,
            registry=self.registry,
        )
        self._writes = Histogram(
            "timeslice_store_write_seconds",
            "Time that a write to the store took until it was durable or had failed.",
            buckets=_WRITES_S,
            registry=self.registry,
        )
        self._faults = Counter(
            "timeslice_faults",
            "Operations on parts that failed on a node, by the node's reason.",
            ("group", "reason"),
            registry=self.registry,
        )
        self._taken = Counter(
            "timeslice_leases_taken",
            "Leases that ended without their holder's yield.",
            ("reason",),
            registry=self.registry,
        )
        self._granted_at: dict[LeaseId, float] = {}
        self._groups: set[GroupId] = set()
        self._reasons: set[str] = set()
        self._fault_labels: set[tuple[GroupId, str]] = set()

    def leads(self, engine: Engine | None, extra: Extra | None = None) -> None:
        """From now on this process leads, by this engine; None: it leads no more. `extra` are further figures."""
        self._engine, self._extra = engine, extra

    def state(self) -> Iterator[Metric]:
        """Whether this process leads, and then how all groups are at this moment."""
        leads = float(self._engine is not None)
        yield GaugeMetricFamily("timeslice_leader", "Whether this process leads.", value=leads)
        if self._engine is None:
            return
        try:
            views = self._engine.groups()
        except Stopping:
            return
        yield from _gauges(views)
        yield from _counters(views)
        if self._extra is not None:
            yield from self._extra()

    @asynccontextmanager
    async def served(self, address: str, tls: TlsFiles) -> AsyncIterator[TelemetryServer]:
        """Serves metrics, health and readiness. Raises ConfigError when it cannot listen there."""
        server = TelemetryServer(address, self.registry, state=self.state, tls=tls, ready=self._not_ready)
        await server.start()
        try:
            yield server
        finally:
            await server.stop()

    def stepped(self, event: Event, effects: Iterable[Effect]) -> None:
        """See `engine.Observer`."""
        new: set[LeaseId] = set()
        for effect in effects:
            match effect:
                case Save(record=LeaseRecord(lease)):
                    new.add(lease.lease_id)
                    self._granted_at[lease.lease_id] = asyncio.get_running_loop().time()
                case Drop(record=LeaseRecord(lease)):
                    self._ended(lease.lease_id, lease.group_ids)
                case Granted(lease=lease) if lease.lease_id in new:
                    for group_id in lease.group_ids:
                        self._waits.labels(group_id).observe(effect.waited_s)
                case HandedOver():
                    self._handed_over(effect)
                case LeasesEnded(lease_ids, reason=reason):
                    self._taken.labels(reason.replace(" ", "_")).inc(len(lease_ids))
        self._heard(event)

    def _handed_over(self, effect: HandedOver) -> None:
        for group_id in effect.group_ids:
            self._handoffs.labels(group_id).observe(effect.seconds)
        for group_id, timings in effect.steps:
            for step in _STEPS:
                if took := getattr(timings, f"{step}_s"):
                    self._steps.labels(group_id, step).observe(took)

    def wrote(self, seconds: float) -> None:
        """See `engine.Observer`."""
        self._writes.observe(seconds)

    def _ended(self, lease_id: LeaseId, group_ids: Iterable[GroupId]) -> None:
        granted_at = self._granted_at.pop(lease_id, None)
        if granted_at is not None:  # else it is from before a restart, and nobody knows since when
            for group_id in group_ids:
                self._holds.labels(group_id).observe(asyncio.get_running_loop().time() - granted_at)

    def _heard(self, event: Event) -> None:
        match event:
            case CommandDone(parts=parts, refused=refused):
                for part in parts:
                    self._fault(part.member.group_id, part.fault)
                self._fault("", refused)
            case PartsReported(parts=parts):
                for part in parts:
                    if part.state is PartState.FAILED:
                        self._fault(part.member.group_id, part.fault)
            case GroupsChanged(groups):
                self._forget_all_but({group.group_id for group in groups})

    def _fault(self, group_id: GroupId, fault: Fault | None) -> None:
        if fault is not None:
            labels = group_id, self._bounded(fault.reason)
            self._fault_labels.add(labels)
            self._faults.labels(*labels).inc()

    def _bounded(self, reason: str) -> str:
        """Nodes say the reason; whatever they make up, the label has few values, and short ones."""
        if reason not in self._reasons:
            if len(self._reasons) >= _MAX_REASONS or not _REASON.fullmatch(reason):
                return _OTHER
            self._reasons.add(reason)
        return reason

    def _forget_all_but(self, groups: set[GroupId]) -> None:
        for gone in self._groups - groups:
            for of_group in (self._waits, self._holds, self._handoffs):
                of_group.remove(gone)
            for step in _STEPS:
                self._steps.remove(gone, step)
        self._groups = groups
        for labels in [labels for labels in self._fault_labels if labels[0] and labels[0] not in groups]:
            self._fault_labels.discard(labels)
            self._faults.remove(*labels)

    def _not_ready(self) -> str:
        return "" if self._engine is not None else "this orchestrator does not lead, or not yet"


def _gauges(views: Iterable[GroupView]) -> Iterator[Metric]:
    group = ("group",)
    waiting = GaugeMetricFamily("timeslice_waiting_requests", "Requests in the queue.", labels=group)
    holding = GaugeMetricFamily("timeslice_leases", "Leases that are held.", labels=group)
    devices = GaugeMetricFamily("timeslice_group_devices", "Devices of the group.", labels=group)
    apart = GaugeMetricFamily("timeslice_group_devices_unreachable", "Of these, on nodes not connected.", labels=group)
    duty = GaugeMetricFamily(
        "timeslice_duty_cycle_ratio",
        "Time that devices were held over devices and time since the first grant.",
        labels=group,
    )
    for view in views:
        name = [view.group_id]
        waiting.add_metric(name, len(view.waiters))
        holding.add_metric(name, sum(holder.leases for holder in view.holders))
        devices.add_metric(name, len(view.devices))
        apart.add_metric(name, sum(not connected for _, _, connected in view.devices))
        duty.add_metric(name, view.duty_cycle)
    yield from (waiting, holding, devices, apart, duty)


def _counters(views: Iterable[GroupView]) -> Iterator[Metric]:
    group = ("group",)
    grants = CounterMetricFamily("timeslice_grants", "Grants.", labels=group)
    parked = CounterMetricFamily("timeslice_parked_bytes", "Device memory that was parked.", labels=group)
    restored = CounterMetricFamily("timeslice_restored_bytes", "Device memory that was restored.", labels=group)
    for view in views:
        name, totals = [view.group_id], view.totals
        grants.add_metric(name, totals.grants)
        parked.add_metric(name, totals.bytes_parked)
        restored.add_metric(name, totals.bytes_restored)
    yield from (grants, parked, restored)
