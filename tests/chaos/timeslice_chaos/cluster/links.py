"""Cuts links of the cluster's own network."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from kube_cluster import Cluster
from kube_cluster.machine import run
from kube_cluster.network import UPLINK


@contextlib.contextmanager
def unreachable(pid: int, addresses: Iterable[str]) -> Iterator[None]:
    """For the pod of that process, meanwhile. What it sends is lost, so of what it is sent nothing is acknowledged.

    The pod's network is held open: when the process is killed meanwhile, the next one of the pod has the same network.
    """
    with Path(f"/proc/{pid}/ns/net").open() as network, contextlib.ExitStack() as stack:
        inside = ["nsenter", f"--net=/proc/{os.getpid()}/fd/{network.fileno()}", "ip", "route"]
        for address in addresses:
            route = ["blackhole", f"{address}/32"]
            run([*inside, "add", *route])
            stack.callback(run, [*inside, "delete", *route])
        yield


@contextlib.contextmanager
def unplugged(cluster: Cluster, node: str) -> Iterator[None]:
    """The node reaches nobody but itself meanwhile, nor does anybody reach it."""
    link = ["ip", "-n", cluster.folder.network_namespace(node), "link", "set", UPLINK]
    try:
        run([*link, "down"])
        yield
    finally:
        run([*link, "up"])
