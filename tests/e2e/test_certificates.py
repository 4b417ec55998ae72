"""The orchestrator's certificate is replaced while everybody works."""

from __future__ import annotations

import ssl
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import trustme
import yaml
from installation import NAMESPACE, Installation
from kube_cluster import Cluster
from reading import SECRETS, one
from sharing import Groups
from team import Team
from turns import sharing
from waits import until

pytestmark = pytest.mark.timeout(900)

NODE = "node-a"
SECRET = "timeslice-orchestrator-tls"
AUTHORITIES = "timeslice-orchestrator-ca"
CONFIG_MAPS = "/api/v1/namespaces/{namespace}/configmaps"
NAMES = [
    f"timeslice-orchestrator{rest}" for rest in ("", ".timeslice", ".timeslice.svc", ".timeslice.svc.cluster.local")
]
CALLS, METRICS = 7070, 9401  # of the orchestrator
VOLUMES_S = 300.0  # the kubelet brings new files to pods that run within two minutes
ANSWER_S = 10.0

Files = dict[str, str]


def test_new_connections_see_a_certificate_that_was_replaced_and_no_pod_starts_anew_for_it(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    shared = sharing(team, groups.create(node=NODE), "a", "b", node=NODE)
    before = starts(installed)
    with replaced(cluster, installed):
        shared.wait_more()
        newcomer = sharing(team, groups.create(node="node-b"), "c", node="node-b")  # by a connection of its own
        newcomer.wait_more()
    shared.wait_more()
    assert starts(installed) == before
    print(f"the longest pause of a turn was {shared.pause():.1f} s")


def starts(installed: Installation) -> dict[str, int]:
    """How often the container of each daemon's pod has been started anew, by the pod's UID."""
    pods = [*installed.node_pods().values(), *installed.orchestrator_pods().values()]
    return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in pods}


@contextmanager
def replaced(cluster: Cluster, installed: Installation) -> Iterator[None]:
    """Another certificate, of another authority; everybody trusts both. The former ones are in use again afterwards."""
    former: Files = one(cluster, SECRETS, SECRET, namespace=NAMESPACE)["data"]
    authority = one(cluster, CONFIG_MAPS, AUTHORITIES, namespace=NAMESPACE)["data"]["ca.crt"]
    made = trustme.CA()
    both = authority + made.cert_pem.bytes().decode()
    try:
        apply(cluster, "ConfigMap", AUTHORITIES, data={"ca.crt": both})
        until("nodes do not know the authority", lambda: not_known(installed, both), limit_s=VOLUMES_S)
        replace(cluster, installed, issued(made))
        yield
    finally:
        replace(cluster, installed, former)
        apply(cluster, "ConfigMap", AUTHORITIES, data={"ca.crt": authority})


def issued(authority: trustme.CA) -> Files:
    """As a Secret has them."""
    made = authority.issue_cert(*NAMES)
    chain = b"".join(pem.bytes() for pem in made.cert_chain_pems)
    files = {"ca.crt": authority.cert_pem.bytes(), "tls.crt": chain, "tls.key": made.private_key_pem.bytes()}
    return {name: b64encode(content).decode() for name, content in files.items()}


def replace(cluster: Cluster, installed: Installation, files: Files) -> None:
    """On return all that listen show it to who connects."""
    apply(cluster, "Secret", SECRET, type="kubernetes.io/tls", data=files)
    wanted = b64decode(files["tls.crt"]).decode()
    until("the former certificate is shown", lambda: not_shown(installed, wanted), limit_s=VOLUMES_S)


def apply(cluster: Cluster, kind: str, name: str, **fields: object) -> None:
    """As kubectl does for people."""
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", given=yaml.safe_dump(made))


def not_known(installed: Installation, authorities: str) -> str | None:
    """A node's pod that has other authorities."""
    pods = [pod["metadata"]["name"] for pod in installed.node_pods().values()]
    lacking = [pod for pod in pods if installed.read(pod, "/etc/timeslice/ca/ca.crt") != authorities]
    return ", ".join(lacking) or None


def not_shown(installed: Installation, certificate: str) -> str | None:
    """Where another one is shown: the leader for calls, each replica for metrics."""
    pods = {name: pod["status"]["podIP"] for name, pod in installed.orchestrator_pods().items()}
    places = [(pods[installed.leader()], CALLS), *((address, METRICS) for address in pods.values())]
    try:
        other = [each for each in places if ssl.get_server_certificate(each, timeout=ANSWER_S) not in certificate]
    except OSError as error:
        return str(error)
    return str(other) if other else None
