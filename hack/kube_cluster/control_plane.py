"""etcd, API server, scheduler, controller manager and DNS, in a network namespace of their own."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from kube_cluster.building import program
from kube_cluster.certificates import Authority, Subject
from kube_cluster.layout import API_SERVICE, DNS_SERVICE, DOMAIN, SERVICES, WORKERS, Addresses, ClusterFolder
from kube_cluster.modules import COREDNS, ETCD, KUBERNETES
from kube_cluster.namespaces import inside_network

API_SERVER = "kube-apiserver"
CONTROLLERS = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
DNS = "coredns"
STORE = "etcd"
PROGRAMS = (STORE, API_SERVER, CONTROLLERS, SCHEDULER, DNS)
_STORE_URL = "http://127.0.0.1:2379"  # in the namespace's own loopback, which nobody else reaches


@dataclass(frozen=True)
class ControlPlane:
    """Command lines and files of the control plane. ``network`` is the file of its network namespace."""

    folder: ClusterFolder
    addresses: Addresses
    gates: Mapping[str, bool]
    network: Path

    @property
    def server(self) -> str:
        """The API server as everybody on the network finds it."""
        return f"https://{self.addresses.control_plane}"

    def issue_certificates(self) -> None:
        """For all components, workers and the administrator, with a kubeconfig for each client."""
        authority = Authority(self.folder.certificates)
        authority.create()
        for name, subject in subjects(self.addresses).items():
            authority.issue(name, subject)
            path = self.folder.configuration / f"{name}.kubeconfig"
            path.touch(mode=0o600)
            path.write_text(json.dumps(authority.kubeconfig(name, self.server)))
        self.folder.kubeconfig.touch(mode=0o600)
        self.folder.kubeconfig.write_text(json.dumps(authority.kubeconfig("admin", self.server)))

    def commands(self) -> dict[str, list[str]]:
        """The component's name and its command line, in the order of their start."""
        own = {
            STORE: self._store(),
            API_SERVER: self._api_server(),
            CONTROLLERS: self._controllers(),
            SCHEDULER: self._scheduler(),
            DNS: self._dns(),
        }
        return {name: inside_network(self.network, command) for name, command in own.items()}

    def _certificate(self, name: str) -> str:
        return str(self.folder.certificates / name)

    def _kubeconfig(self, name: str) -> str:
        return str(self.folder.configuration / f"{name}.kubeconfig")

    def _gates(self) -> list[str]:
        return [f"--feature-gates={gates_line(self.gates)}"] if self.gates else []

    def _store(self) -> list[str]:
        peers = "http://127.0.0.1:2380"
        return [
            str(program(ETCD, "etcd")),
            f"--data-dir={self.folder.etcd}",
            f"--listen-client-urls={_STORE_URL}",
            f"--advertise-client-urls={_STORE_URL}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=default={peers}",
            "--unsafe-no-fsync",  # a test cluster outlives no power cut
            "--log-level=warn",
        ]

    def _api_server(self) -> list[str]:
        return [
            str(program(KUBERNETES, API_SERVER)),
            f"--etcd-servers={_STORE_URL}",
            "--secure-port=443",  # so that the address of the Service works without translation
            "--bind-address=0.0.0.0",
            f"--advertise-address={self.addresses.control_plane}",
            f"--service-cluster-ip-range={SERVICES}",
            f"--service-account-issuer=https://kubernetes.default.svc.{DOMAIN}",
            f"--service-account-key-file={self._certificate('service-accounts.pub')}",
            f"--service-account-signing-key-file={self._certificate('service-accounts.key')}",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={self._certificate('ca.crt')}",
            f"--tls-cert-file={self._certificate('api-server.crt')}",
            f"--tls-private-key-file={self._certificate('api-server.key')}",
            f"--kubelet-certificate-authority={self._certificate('ca.crt')}",
            f"--kubelet-client-certificate={self._certificate('api-server-to-kubelet.crt')}",
            f"--kubelet-client-key={self._certificate('api-server-to-kubelet.key')}",
            "--kubelet-preferred-address-types=InternalIP",
            "--allow-privileged=true",
            *self._gates(),
        ]

    def _controllers(self) -> list[str]:
        return [
            str(program(KUBERNETES, CONTROLLERS)),
            f"--kubeconfig={self._kubeconfig('controller-manager')}",
            f"--service-account-private-key-file={self._certificate('service-accounts.key')}",
            f"--root-ca-file={self._certificate('ca.crt')}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            *self._gates(),
        ]

    def _scheduler(self) -> list[str]:
        return [
            str(program(KUBERNETES, SCHEDULER)),
            f"--kubeconfig={self._kubeconfig('scheduler')}",
            "--leader-elect=false",
            *self._gates(),
        ]

    def _dns(self) -> list[str]:
        path = self.folder.configuration / "Corefile"
        path.write_text(corefile(self._kubeconfig("dns")))
        return [str(program(COREDNS, "coredns")), f"-conf={path}"]


def gates_line(gates: Mapping[str, bool]) -> str:
    """As ``--feature-gates`` wants them."""
    return ",".join(f"{name}={str(value).lower()}" for name, value in sorted(gates.items()))


def corefile(kubeconfig: str) -> str:
    """CoreDNS answers for the cluster alone; there is no way out to other names."""
    return f""".:53 {{
    bind {DNS_SERVICE}
    errors
    health 127.0.0.1:8080
    ready 127.0.0.1:8181
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
    cache 5
}}
"""


def subjects(addresses: Addresses) -> dict[str, Subject]:
    """Whom certificates are made for."""
    names = [f"DNS:{name}" for name in ("localhost", *_service_names("kubernetes.default"))]
    ips = [f"IP:{address}" for address in (IPv4Address("127.0.0.1"), addresses.control_plane, API_SERVICE)]
    found = {
        "admin": Subject("admin", "system:masters"),
        "api-server": Subject(API_SERVER, names=(*names, *ips)),
        "api-server-to-kubelet": Subject("kube-apiserver-kubelet-client", "system:masters"),
        "controller-manager": Subject("system:kube-controller-manager"),
        "scheduler": Subject("system:kube-scheduler"),
        "dns": Subject(DNS),
    }
    for index, worker in enumerate(WORKERS):
        reach = (f"DNS:{worker}", f"IP:{addresses.worker(index)}")
        found[worker] = Subject(f"system:node:{worker}", "system:nodes", reach)
    return found


def _service_names(service: str) -> Sequence[str]:
    return (service.split(".")[0], service, f"{service}.svc", f"{service}.svc.{DOMAIN}")


def first_objects() -> dict[str, Any]:
    """What every cluster has besides what the API server makes: DNS, and what it may read."""
    reading = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": reading}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": DNS}],
    }
    ports = [{"name": f"dns-{protocol.lower()}", "port": 53, "protocol": protocol} for protocol in ("UDP", "TCP")]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "kube-system"},
        "spec": {"clusterIP": str(DNS_SERVICE), "ports": ports},
    }
    named = [{**thing, "metadata": {"name": "system:coredns"}} for thing in (role, binding)]
    return {"apiVersion": "v1", "kind": "List", "items": [*named, service]}
