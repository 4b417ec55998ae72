"""Configuration files of a worker: containerd, CNI and the kubelet."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube_cluster.layout import BRIDGE, DNS_SERVICE, DOMAIN, SERVICES, Addresses, ClusterFolder, NodeFolder

PAUSE_IMAGE = "docker.io/library/timeslice-pause:dev"


@dataclass(frozen=True)
class NodeFiles:
    """Renders them. ``index`` is the worker's place among the workers."""

    cluster: ClusterFolder
    addresses: Addresses
    index: int
    node: NodeFolder

    @property
    def containerd(self) -> Path:
        return self.node.configuration / "containerd.toml"

    @property
    def kubelet(self) -> Path:
        return self.node.configuration / "kubelet.json"

    @property
    def _networks(self) -> Path:
        return self.node.configuration / "cni"

    @property
    def _resolver(self) -> Path:
        return self.node.configuration / "resolv.conf"

    def write(self, *, plugins: Path, runtime: Path, gates: Mapping[str, bool]) -> None:
        """``plugins`` is the folder of the CNI plugins, ``runtime`` the path of runc."""
        self._networks.mkdir(parents=True, exist_ok=True)
        network = self._networks / "10-pods.conflist"
        network.write_text(json.dumps(network_configuration(self.addresses, self.index)))
        self._resolver.write_text(f"nameserver {DNS_SERVICE}\n")
        self.containerd.write_text(containerd_configuration(networks=self._networks, plugins=plugins, runtime=runtime))
        self.kubelet.write_text(json.dumps(self._kubelet_configuration(gates), indent=1))

    def _kubelet_configuration(self, gates: Mapping[str, bool]) -> dict[str, Any]:
        certificates = self.cluster.certificates
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": str(self.addresses.worker(self.index)),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(certificates / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "tlsCertFile": str(certificates / f"{self.node.name}.crt"),
            "tlsPrivateKeyFile": str(certificates / f"{self.node.name}.key"),
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cluster.cgroup}/{self.node.name}",
            "failCgroupV1": False,
            "clusterDNS": [str(DNS_SERVICE)],
            "clusterDomain": DOMAIN,
            "resolvConf": str(self._resolver),
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "64Mi"},
            "imageGCHighThresholdPercent": 100,  # an image that is removed cannot be pulled again
            "imageGCLowThresholdPercent": 99,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "maxPods": 230,
            "featureGates": dict(gates),
        }


def network_configuration(addresses: Addresses, index: int) -> dict[str, Any]:
    """Pods are on the worker's bridge, each worker with its range of the one network. Addresses end with the boot."""
    first, last = addresses.pods(index)
    default = {"dst": "0.0.0.0/0", "gw": str(addresses.worker(index))}
    services = {"dst": str(SERVICES), "gw": str(addresses.control_plane)}
    assignment = {
        "type": "host-local",
        "dataDir": "/run/cni/networks",
        "ranges": [[{"subnet": str(addresses.network), "rangeStart": str(first), "rangeEnd": str(last)}]],
        "routes": [default, services],
    }
    plugin = {"type": "bridge", "bridge": BRIDGE, "ipam": assignment}
    return {"cniVersion": "1.0.0", "name": "pods", "plugins": [plugin]}


def containerd_configuration(*, networks: Path, plugins: Path, runtime: Path) -> str:
    """TOML. ``networks`` is the folder of the CNI configuration."""
    return f"""version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp"]

[grpc]
  address = "/run/containerd/containerd.sock"

[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]
  restrict_oom_score_adj = true  # works without CAP_SYS_RESOURCE, too
  disable_apparmor = true

[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["{plugins}"]
  conf_dir = "{networks}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
  BinaryName = "{runtime}"
  SystemdCgroup = false
"""
