"""What runs of a cluster."""

from dataclasses import asdict, dataclass
from typing import Any

from kube_cluster.cluster import Cluster
from kube_cluster.errors import ClusterError
from kube_cluster.waiting import failure


@dataclass(frozen=True)
class Component:
    """One program. ``problem`` is empty when all is well with it, as far as it can tell."""

    name: str
    pid: int | None
    alive: bool
    address: str = ""
    problem: str = ""


@dataclass(frozen=True)
class Report:
    """``components`` is empty when the cluster is not there at all."""

    name: str
    kubeconfig: str
    components: tuple[Component, ...]

    @property
    def is_well(self) -> bool:
        return bool(self.components) and all(part.alive and not part.problem for part in self.components)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "well": self.is_well}


def report(cluster: Cluster) -> Report:
    """Asks every program; needs some seconds when some do not answer."""
    if not cluster.folder.settings.exists():
        return Report(cluster.name, str(cluster.kubeconfig), ())
    problems = _problems(cluster)
    addresses = _addresses(cluster)
    parts = []
    for name in cluster.programs:
        identity = cluster.ledger.identity(name)
        alive = identity is not None and identity.is_alive()
        pid = identity.pid if identity else None
        parts.append(Component(name, pid, alive, addresses.get(name, ""), problems.get(name, "")))
    return Report(cluster.name, str(cluster.kubeconfig), tuple(parts))


def _problems(cluster: Cluster) -> dict[str, str]:
    """By program, what it says itself or what the API server says of it."""
    found = {}
    if said := failure(lambda: cluster.api.get("/readyz")):
        found["kube-apiserver"] = said
    try:
        conditions = cluster.api.node_conditions()
    except ClusterError:
        conditions = {}
    for name, node in cluster.nodes.items():
        if said := conditions.get(name, "node is not known"):
            found[f"{name}.kubelet"] = said
        if said := failure(node.gpus.control.snapshot):
            found[f"{name}.gpus"] = said
    return found


def _addresses(cluster: Cluster) -> dict[str, str]:
    found = {"kube-apiserver": cluster.control_plane.server}
    for name, node in cluster.nodes.items():
        found[f"{name}.kubelet"] = node.address
        found[f"{name}.containerd"] = str(node.folder.containerd_socket)
        found[f"{name}.gpus"] = str(node.gpus.socket)
    return found


def table(found: Report) -> str:
    """For a terminal."""
    if not found.components:
        return f"cluster {found.name} is not there"
    rows = [("COMPONENT", "PID", "STATE", "ADDRESS", "PROBLEM")]
    for part in found.components:
        rows.append((part.name, str(part.pid or "-"), "runs" if part.alive else "ended", part.address, part.problem))
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=True)).rstrip() for row in rows
    ]
    return "\n".join([*lines, f"KUBECONFIG={found.kubeconfig}"])
