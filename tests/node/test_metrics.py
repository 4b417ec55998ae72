"""Figures of the node: named and bounded as Prometheus wants them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Metric, generate_latest
from prometheus_client.registry import Collector
from timeslice_driver.backends.base import TargetState
from timeslice_driver.metrics import NodeMetrics
from timeslice_driver.parts import Held, Member, Part, Step
from timeslice_driver.processes import ProcessId, ProcFs


@dataclass
class FakeNode:
    parts: tuple[Part, ...]
    connected: bool = True


def part(job_id: str, state: TargetState, size: int) -> Part:
    process = ProcessId(1, 1)
    return Part(Member(job_id, "g"), ("GPU-0",), held={process: Held(process, state, {"GPU-0": size})})


class Shown(Collector):
    """State and counts in one registry, as text shows them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.metrics = NodeMetrics(self.registry, ProcFs())
        self.registry.register(self)

    def collect(self) -> Iterable[Metric]:
        return self.metrics.state()


def made() -> tuple[NodeMetrics, CollectorRegistry]:
    shown = Shown()
    return shown.metrics, shown.registry


def lines(registry: CollectorRegistry) -> list[str]:
    return generate_latest(registry).decode().splitlines()


def test_a_node_that_does_not_work_yet_has_figures_too() -> None:
    _, registry = made()
    shown = lines(registry)
    assert "timeslice_node_driver_working 0.0" in shown
    assert "timeslice_node_orchestrator_connected 0.0" in shown
    assert 'timeslice_node_parts{state="parked"} 0.0' in shown
    assert 'timeslice_node_step_seconds_count{step="restore"} 0.0' in shown


def test_host_memory_counts_what_is_parked_and_not_what_is_on_the_devices() -> None:
    metrics, registry = made()
    metrics.node = FakeNode((part("a", TargetState.CHECKPOINTED, 700), part("b", TargetState.RUNNING, 500)))
    shown = lines(registry)
    assert "timeslice_node_host_memory_parked_bytes 700.0" in shown
    assert 'timeslice_node_parts{state="parked"} 1.0' in shown
    assert 'timeslice_node_parts{state="running"} 1.0' in shown
    assert "timeslice_node_orchestrator_connected 1.0" in shown
    assert any(line.startswith("timeslice_node_host_memory_available_bytes ") for line in shown)


def test_only_copies_move_bytes() -> None:
    metrics, registry = made()
    took = dict(zip(Step, (0.5, 1.5, 2.5, 3.5), strict=True))
    for step, seconds in took.items():
        metrics.step(step, seconds, 100)
    shown = lines(registry)
    assert "timeslice_node_parked_bytes_total 100.0" in shown
    assert "timeslice_node_restored_bytes_total 100.0" in shown
    for step, seconds in took.items():
        assert f'timeslice_node_step_seconds_sum{{step="{step.value}"}} {seconds}' in shown


def test_however_many_reasons_there_are_the_labels_stay_few() -> None:
    metrics, registry = made()
    for number in range(200):
        metrics.fault(f"Reason{number}")
    metrics.fault("Reason0")
    shown = [line for line in lines(registry) if line.startswith("timeslice_node_faults_total{")]
    assert len(shown) == 65
    assert 'timeslice_node_faults_total{reason="Other"} 136.0' in shown
    assert 'timeslice_node_faults_total{reason="Reason0"} 2.0' in shown
