"""Processes in pods, as the machine sees them."""

from __future__ import annotations

import os
import signal

from kube_cluster import Cluster, WorkerNode
from reading import Object

_SCHEME = "containerd://"


def main_process(cluster: Cluster, pod: Object) -> int:
    """The pid of the first process of the pod's only container. KeyError when that does not run."""
    (status,) = pod["status"]["containerStatuses"]
    return main_processes(cluster.nodes[pod["spec"]["nodeName"]])[status["containerID"]]


def main_processes(node: WorkerNode) -> dict[str, int]:
    """The pids of the first processes of all containers that run on the node, by the IDs that pods' statuses have."""
    tasks = [line.split() for line in node.ctr("tasks", "ls").splitlines()[1:]]
    return {f"{_SCHEME}{container}": int(pid) for container, pid, status in tasks if status == "RUNNING"}


def kill(cluster: Cluster, pod: Object) -> None:
    """SIGKILL for that process. The kubelet starts the container again, or gives the pod up, as its policy says."""
    os.kill(main_process(cluster, pod), signal.SIGKILL)
