"""Figures of the node's work, for Prometheus. Labels take few values, whatever jobs and groups there are."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric

from timeslice_driver.meter import Meter
from timeslice_driver.parts import Part, PartState, Step
from timeslice_driver.processes import ProcFs

_SECONDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 180.0, 600.0)
_MOST_REASONS: Final = 64  # they come from our own sources and the driver's error names; nobody else makes any
_OTHER: Final = "Other"


class Observed(Protocol):
    """What is looked at when somebody asks for the figures: a node."""

    @property
    def parts(self) -> tuple[Part, ...]:
        """On it now."""
        ...

    @property
    def connected(self) -> bool:
        """The orchestrator has welcomed it."""
        ...


class NodeMetrics(Meter):
    """The figures of one node process; they outlive a node that is started anew in it.

    Args:
        registry: where those are shown that are counted; `state` has what there is.
        procfs: tells the machine's memory.
    """

    def __init__(self, registry: CollectorRegistry, procfs: ProcFs) -> None:
        self.node: Observed | None = None  # None while no node works, such as without an NVIDIA driver
        self._procfs = procfs
        self._reasons: set[str] = set()
        self._steps = Histogram(
            "timeslice_node_step_seconds",
            "Time that one step of a hand-off took for all processes that took it together",
            ["step"],
            buckets=_SECONDS,
            registry=registry,
        )
        for step in Step:
            self._steps.labels(step.value)
        self._parked = Counter("timeslice_node_parked_bytes", "Device memory copied to host memory", registry=registry)
        self._restored = Counter(
            "timeslice_node_restored_bytes", "Host memory copied back to devices", registry=registry
        )
        self._faults = Counter(
            "timeslice_node_faults", "Parts that a command could not move, by reason", ["reason"], registry=registry
        )

    def step(self, step: Step, seconds: float, moved: int) -> None:
        """See `Meter.step`."""
        self._steps.labels(step.value).observe(seconds)
        if step is Step.CHECKPOINT:
            self._parked.inc(moved)
        elif step is Step.RESTORE:
            self._restored.inc(moved)

    def fault(self, reason: str) -> None:
        """See `Meter.fault`."""
        if len(self._reasons) < _MOST_REASONS:
            self._reasons.add(reason)
        self._faults.labels(reason if reason in self._reasons else _OTHER).inc()

    def state(self) -> Iterable[Metric]:
        """What there is now, at the moment when somebody asks."""
        parts = self.node.parts if self.node else ()
        parked = sum(held.size for part in parts for held in part.held.values() if not held.resident)
        yield from (
            _gauge("timeslice_node_host_memory_parked_bytes", "Host memory that holds what is parked", parked),
            _gauge(
                "timeslice_node_host_memory_available_bytes",
                "Host memory that is left (MemAvailable)",
                self._procfs.available_memory(),
            ),
            _gauge("timeslice_node_driver_working", "1 while the NVIDIA driver answers", self.node is not None),
            _gauge(
                "timeslice_node_orchestrator_connected",
                "1 while the orchestrator has welcomed the node",
                self.node is not None and self.node.connected,
            ),
        )
        yield from _by_state(parts)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _by_state(parts: Iterable[Part]) -> Iterator[Metric]:
    tally = Tally(part.state for part in parts)
    family = GaugeMetricFamily("timeslice_node_parts", "Members with a share on this node, by state", labels=["state"])
    for state in PartState:
        family.add_metric([state.value], tally[state])
    yield family
