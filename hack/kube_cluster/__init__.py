"""A real Kubernetes cluster on one Linux machine, without Docker: two worker nodes with emulated GPUs."""

from kube_cluster.cluster import Cluster
from kube_cluster.errors import ClusterError
from kube_cluster.node import WorkerNode

__all__ = ["Cluster", "ClusterError", "WorkerNode"]
