"""Processes in pods, as the machine sees them."""

from __future__ import annotations

import os
import signal

from kube_cluster import Cluster
from reading import Object


def main_process(cluster: Cluster, pod: Object) -> int:
    """The pid of the first process of the pod's only container."""
    (status,) = pod["status"]["containerStatuses"]
    container = status["containerID"].removeprefix("containerd://")
    tasks = cluster.nodes[pod["spec"]["nodeName"]].ctr("tasks", "ls").splitlines()
    (pid,) = [int(line.split()[1]) for line in tasks if line.startswith(container)]
    return pid


def kill(cluster: Cluster, pod: Object) -> None:
    """SIGKILL for that process. The kubelet starts the container again, or gives the pod up, as its policy says."""
    os.kill(main_process(cluster, pod), signal.SIGKILL)
