"""Reads of the API server that cost little, so that tests can look often. Writes are kubectl's."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

from kube_cluster import Cluster

Object = dict[str, Any]

PODS = "/api/v1/namespaces/{namespace}/pods"
CLAIMS = "/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
EVENTS = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
DAEMON_SETS = "/apis/apps/v1/namespaces/{namespace}/daemonsets"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{namespace}/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
SECRETS = "/api/v1/namespaces/{namespace}/secrets"
JOBS = "/apis/batch/v1/namespaces/{namespace}/jobs"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
GROUPS = "/apis/timeslice.dev/v1alpha1/timeslicegroups"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"


def objects(cluster: Cluster, path: str, *, namespace: str = "", fields: str = "", labels: str = "") -> list[Object]:
    """Those that the selectors choose, all without any. ClusterError when the API server does not answer."""
    selectors = {"fieldSelector": fields, "labelSelector": labels}
    query = urlencode({key: value for key, value in selectors.items() if value})
    found: list[Object] = json.loads(cluster.api.get(f"{path.format(namespace=namespace)}?{query}"))["items"]
    return found


def one(cluster: Cluster, path: str, name: str, *, namespace: str = "") -> Object:
    """The object with that name; empty when there is none."""
    found = objects(cluster, path, namespace=namespace, fields=f"metadata.name={name}")
    return found[0] if found else {}


def condition(raw: Object, kind: str) -> Object:
    """The status condition of that type; empty when there is none."""
    listed: list[Object] = (raw.get("status") or {}).get("conditions") or []
    return next((each for each in listed if each["type"] == kind), {})
