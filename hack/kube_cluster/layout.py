"""Names, folders and addresses of a cluster and its nodes."""

import os
import platform
import re
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

from kube_cluster.errors import ClusterError

WORKERS = ("node-a", "node-b")
SERVICES = IPv4Network("10.96.0.0/16")
API_SERVICE = SERVICES[1]
DNS_SERVICE = SERVICES[10]
DOMAIN = "cluster.local"
BRIDGE = "br0"
# A worker sees its own folders in these places, and nothing of the machine's.
_HIDDEN_IN_A_NODE = (Path("/run"), Path("/var/lib"), Path("/var/log"))


def state_root() -> Path:
    """The folder of all clusters: ``$TIMESLICE_CLUSTER_DIR``, else /var/tmp/timeslice-cluster."""
    return Path(os.environ.get("TIMESLICE_CLUSTER_DIR", "/var/tmp/timeslice-cluster"))


def check_visible(path: Path) -> None:
    """ClusterError for a path that a node could not see."""
    if any(path.resolve().is_relative_to(hidden) for hidden in _HIDDEN_IN_A_NODE):
        hidden = ", ".join(map(str, _HIDDEN_IN_A_NODE))
        raise ClusterError(f"{path}: not below {hidden}, where each node has folders of its own")


@dataclass(frozen=True)
class Addresses:
    """One flat network, 10.<octet>.0.0/16: the control plane, the machine itself and a range for each worker's pods."""

    octet: int

    @property
    def network(self) -> IPv4Network:
        return IPv4Network(f"10.{self.octet}.0.0/16")

    @property
    def control_plane(self) -> IPv4Address:
        return self.network[1]

    @property
    def machine(self) -> IPv4Address:
        return self.network[254]

    def worker(self, index: int) -> IPv4Address:
        """The address of the worker with that index, which is also its pods' gateway."""
        return self.network[256 * (index + 1) + 1]

    def pods(self, index: int) -> tuple[IPv4Address, IPv4Address]:
        """First and last address of that worker's pods."""
        start = 256 * (index + 1)
        return self.network[start + 10], self.network[start + 250]


@dataclass(frozen=True)
class NodeFolder:
    """A worker's own folders. Inside the node ``run`` is /run, ``var/lib`` is /var/lib, and so on."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def run(self) -> Path:
        """Lost at a reboot."""
        return self.path / "run"

    @property
    def var_lib(self) -> Path:
        return self.path / "var/lib"

    @property
    def var_log(self) -> Path:
        return self.path / "var/log"

    @property
    def etc(self) -> Path:
        """What differs from the machine's /etc."""
        return self.path / "etc"

    @property
    def boot_id(self) -> Path:
        """Inside the node it is /proc/sys/kernel/random/boot_id."""
        return self.path / "boot_id"

    @property
    def gpus(self) -> Path:
        """Of the emulated GPUs: ``run/socket``, the root of a driver in ``driver``, device files in ``dev``.

        Inside the node it is ``NODE_GPUS``.
        """
        return self.var_lib / "gpu-emulator"

    @property
    def configuration(self) -> Path:
        """Of containerd, CNI and the kubelet."""
        return self.path / "configuration"

    @property
    def kubelet(self) -> Path:
        return self.var_lib / "kubelet"

    @property
    def containerd_socket(self) -> Path:
        return self.run / "containerd/containerd.sock"


NODE_GPUS = Path("/var/lib/gpu-emulator")
DRIVER_LIBRARIES = f"usr/lib/{platform.machine()}-linux-gnu"  # where Debian's driver packages have them


@dataclass(frozen=True)
class ClusterFolder:
    """All files of a cluster."""

    name: str
    root: Path = field(default_factory=state_root)

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", self.name):
            raise ClusterError(f"{self.name!r}: a cluster's name has at most 20 letters, digits and dashes")

    @property
    def path(self) -> Path:
        return self.root / self.name

    @property
    def lock(self) -> Path:
        """Outside of ``path``, which comes and goes while it is held."""
        return self.root / f"{self.name}.lock"

    @property
    def settings(self) -> Path:
        return self.path / "settings.json"

    @property
    def complete(self) -> Path:
        """There when ``up`` has succeeded."""
        return self.path / "complete"

    @property
    def kubeconfig(self) -> Path:
        return self.path / "kubeconfig"

    @property
    def certificates(self) -> Path:
        return self.path / "certificates"

    @property
    def processes(self) -> Path:
        return self.path / "processes"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def etcd(self) -> Path:
        return self.path / "etcd"

    @property
    def configuration(self) -> Path:
        """Of the control plane's programs."""
        return self.path / "configuration"

    def node(self, name: str) -> NodeFolder:
        return NodeFolder(self.path / name)

    def network_namespace(self, part: str) -> str:
        """The name for ``ip netns`` of a worker's, or the control plane's."""
        return f"timeslice-cluster.{self.name}.{part}"

    @property
    def cgroup(self) -> str:
        """Below the root of each hierarchy; the workers' are below it."""
        return f"timeslice-cluster.{self.name}"
