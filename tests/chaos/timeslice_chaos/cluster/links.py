"""Cuts links of the cluster's own network."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator

from kube_cluster import Cluster
from kube_cluster.errors import ClusterError
from kube_cluster.machine import run
from kube_cluster.network import UPLINK


@contextlib.contextmanager
def unreachable(pid: int, addresses: Iterable[str]) -> Iterator[None]:
    """For the pod of that process, meanwhile. What it sends is lost, so of what it is sent nothing is acknowledged."""
    inside = ["nsenter", f"--target={pid}", "--net", "ip", "route"]
    routes = [["blackhole", f"{address}/32"] for address in addresses]
    try:
        for route in routes:
            run([*inside, "add", *route])
        yield
    finally:
        for route in routes:
            with contextlib.suppress(ClusterError):  # the pod has gone meanwhile, and its network with it
                run([*inside, "delete", *route])


@contextlib.contextmanager
def unplugged(cluster: Cluster, node: str) -> Iterator[None]:
    """The node reaches nobody but itself meanwhile, nor does anybody reach it."""
    link = ["ip", "-n", cluster.folder.network_namespace(node), "link", "set", UPLINK]
    try:
        run([*link, "down"])
        yield
    finally:
        run([*link, "up"])
