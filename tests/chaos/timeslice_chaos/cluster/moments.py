"""Moments within a hand-off: a call of the GPU that is slow, so that something can be done meanwhile."""

from __future__ import annotations

from gpu_emulator.faults import Fault
from kube_cluster import WorkerNode

from timeslice_chaos.cluster.follow import Tail
from timeslice_chaos.process import eventually

_CALL_S = 2.0  # long enough for kubectl, or a look for a pid
REACH_S = 15.0  # how long a call may be waited for


def slow_call(node: WorkerNode, call: str) -> int | None:
    """The job's pid whose call has begun and goes on for some time; None when nobody makes it."""
    return struck(node, Fault(call, nth=1, delay_ms=1000 * _CALL_S))


def struck(node: WorkerNode, fault: Fault) -> int | None:
    """The job's pid that the fault has struck; None when its moment did not come."""
    tail = Tail.from_now(node.gpus.trace)
    node.gpus.control.inject(fault)
    found: list[int] = []

    def look() -> bool:
        found.extend(event.pid for event in tail.events() if event.what == "fault")
        return bool(found)

    return found[0] if eventually(look, REACH_S) else None
