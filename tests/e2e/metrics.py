"""Reads figures of a daemon's pod as Prometheus does by the chart's PodMonitor: by address, with the name checked."""

from __future__ import annotations

import ssl
from http.client import HTTPSConnection

from installation import NAMESPACE
from kube_cluster import Cluster
from prometheus_client.parser import text_string_to_metric_families
from reading import Object

NAMES = {
    "node": f"timeslice-node.{NAMESPACE}.svc",
    "orchestrator": f"timeslice-orchestrator.{NAMESPACE}.svc.cluster.local",
}
_LIMIT_S = 10.0

Figures = dict[tuple[str, frozenset[tuple[str, str]]], float]


class _ByAddress(HTTPSConnection):
    """Dials an address, and wants a certificate of a name."""

    def __init__(self, address: str, port: int, *, name: str, context: ssl.SSLContext) -> None:
        super().__init__(address, port, timeout=_LIMIT_S, context=context)
        self._name, self._tls = name, context

    def connect(self) -> None:
        super(HTTPSConnection, self).connect()
        self.sock = self._tls.wrap_socket(self.sock, server_hostname=self._name)


def figures(cluster: Cluster, pod: Object) -> Figures:
    """All of the pod's, by name and labels."""
    component = pod["metadata"]["labels"]["app.kubernetes.io/component"]
    (container,) = pod["spec"]["containers"]
    (port,) = (each["containerPort"] for each in container["ports"] if each["name"] == "telemetry")
    authority = cluster.kubectl(
        "get",
        "configmap",
        "timeslice-orchestrator-ca",
        f"--namespace={NAMESPACE}",
        r"--output=jsonpath={.data.ca\.crt}",
    )
    context = ssl.create_default_context(cadata=authority)
    connection = _ByAddress(pod["status"]["podIP"], port, name=NAMES[component], context=context)
    try:
        connection.request("GET", "/metrics")
        answer = connection.getresponse()
        text = answer.read().decode()
    finally:
        connection.close()
    assert answer.status == 200, text
    families = text_string_to_metric_families(text)
    return {(each.name, frozenset(each.labels.items())): each.value for family in families for each in family.samples}


def figure(found: Figures, name: str, **labels: str) -> float:
    """The one with these labels. KeyError when there is none."""
    return found[name, frozenset(labels.items())]
