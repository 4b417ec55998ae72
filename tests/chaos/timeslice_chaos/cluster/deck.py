"""What can strike on a cluster, as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ClusterFault:
    """One fault.

    Attributes:
        kind: what is done, for the report: kill, stop, delete, force (a deletion), evict, restart, away, lease, status,
            slices, cut, power or gpu.
        target: to whom: leader, node (the pod of our DaemonSet), machine, kubelet, containerd, API server, or a job's
            process: holder, waiter, parked, granted (a moment ago) or mover (whose call of the GPU it is).
        during: within a call of the GPU; empty: at a random moment.
        how: in words, for the report.
        seconds: how long it lasts.
        gpu: the fields of a script of the GPU.
    """

    kind: str
    target: str
    during: str = ""
    how: str = ""
    seconds: float = 0.0
    gpu: Mapping[str, Any] = field(default_factory=dict)

    @property
    def where(self) -> str:
        """For the report."""
        within = f"in {self.during}" if self.during else ""
        return " ".join(filter(None, [self.target, within, self.how, *self.gpu]))


CALLS = ("lock", "checkpoint", "restore", "unlock")
_SHORT_S = 3.0
_LONG_S = 20.0  # outlasts the orchestrator's Lease (15 s), and the leases of jobs


def _within_hand_offs() -> Iterator[ClusterFault]:
    for call in CALLS:
        yield ClusterFault("kill", "leader", call)
        yield ClusterFault("kill", "node", call)
        yield ClusterFault("delete", "node", call)
        yield ClusterFault("force", "mover", call)
    for call in ("checkpoint", "restore"):
        yield ClusterFault("restart", "kubelet", call)
        yield ClusterFault("restart", "containerd", call)
        yield ClusterFault("away", "API server", call, seconds=_SHORT_S)


def _platform() -> Iterator[ClusterFault]:
    for target in ("leader", "node"):
        for kind in ("kill", "delete", "force"):
            yield ClusterFault(kind, target)
        yield ClusterFault("stop", target, seconds=_SHORT_S)
        yield ClusterFault("stop", target, how="outlasting a lease", seconds=_LONG_S)
    for target in ("kubelet", "containerd"):
        yield ClusterFault("restart", target)
    yield ClusterFault("away", "API server", seconds=_SHORT_S)
    yield ClusterFault("away", "API server", how="outlasting a lease", seconds=_LONG_S)
    yield ClusterFault("power", "machine")


def _objects() -> Iterator[ClusterFault]:
    yield ClusterFault("lease", "leader", how="deleted")
    yield ClusterFault("lease", "leader", how="taken by a stranger")
    yield ClusterFault("status", "group", how="overwritten with an old one")
    yield ClusterFault("slices", "all", how="deleted")


def _links() -> Iterator[ClusterFault]:
    for seconds, how in ((_SHORT_S, ""), (_LONG_S, "until it is noticed")):
        yield ClusterFault("cut", "node", how=f"from orchestrators {how}".strip(), seconds=seconds)
        yield ClusterFault("cut", "machine", how=f"from everybody {how}".strip(), seconds=seconds)


def _jobs() -> Iterator[ClusterFault]:
    for target in ("holder", "waiter", "parked", "granted"):
        yield ClusterFault("kill", target)
        yield ClusterFault("force", target)
    for target in ("holder", "parked"):
        yield ClusterFault("delete", target)
        yield ClusterFault("evict", target)
    yield ClusterFault("stop", "holder", seconds=_SHORT_S)
    yield ClusterFault("stop", "holder", how="outlasting a lease", seconds=_LONG_S)


def _gpu() -> Iterator[ClusterFault]:
    for call, code in (("lock", 600), ("checkpoint", 304), ("restore", 304)):
        yield ClusterFault("gpu", "gpu", call, gpu={"rc": code})
    for call in ("checkpoint", "restore"):
        yield ClusterFault("gpu", "gpu", call, gpu={"kill_target": True})


def faults() -> list[ClusterFault]:
    """Each of them once."""
    return [*_within_hand_offs(), *_platform(), *_objects(), *_links(), *_jobs(), *_gpu()]
