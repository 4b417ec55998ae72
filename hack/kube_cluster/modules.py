"""The Go modules that the cluster's programs are built from: what each gives, and how it is built.

The version of everything is in ``build/<name>/go.mod`` and its checksum in ``build/<name>/go.sum``.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

BUILD_FOLDER = Path(__file__).resolve().parent / "build"
_KUBERNETES_VERSION = "v1.37.2"


def _kubernetes_linker_flags() -> str:
    """The version that the programs report; clients and servers decide by it what the other side can do."""
    major, minor = _KUBERNETES_VERSION.removeprefix("v").split(".")[:2]
    values = {"gitVersion": _KUBERNETES_VERSION, "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{key}={value}" for key, value in values.items())


@dataclass(frozen=True)
class Module:
    """A go.mod of ours and the main packages to build in it. ``programs`` maps a file name to its package."""

    name: str
    programs: dict[str, str]
    tags: str = ""
    linker_flags: str = ""
    cgo: bool = False

    @property
    def folder(self) -> Path:
        return BUILD_FOLDER / self.name

    @property
    def flags(self) -> tuple[str, ...]:
        """Of ``go build``, without the output."""
        flags = ["-trimpath", "-mod=readonly", "-buildvcs=false", f"-ldflags=-s -w {self.linker_flags}".rstrip()]
        return (*flags, f"-tags={self.tags}") if self.tags else tuple(flags)

    def digest(self) -> str:
        """Changes with everything that decides what is built; the toolchain is not part of it."""
        found = hashlib.sha256()
        for part in sorted(self.folder.iterdir()):
            found.update(f"{part.name}\0".encode() + part.read_bytes() + b"\0")
        found.update(repr((self.flags, sorted(self.programs.items()), self.cgo)).encode())
        return found.hexdigest()[:16]


def _same_names(prefix: str, *names: str) -> dict[str, str]:
    return {name.rsplit("/", 1)[-1]: f"{prefix}/{name}" for name in names}


KUBERNETES = Module(
    "kubernetes",
    _same_names(
        "k8s.io/kubernetes/cmd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"
    ),
    linker_flags=_kubernetes_linker_flags(),
)
CONTAINERD = Module(
    "containerd",
    _same_names("github.com/containerd/containerd/v2/cmd", "containerd", "containerd-shim-runc-v2", "ctr"),
    tags="no_btrfs,no_devmapper,no_zfs",
)
RUNC = Module("runc", {"runc": "github.com/opencontainers/runc"}, tags="seccomp", cgo=True)
CNI = Module(
    "cni",
    _same_names("github.com/containernetworking/plugins/plugins", "main/bridge", "main/loopback", "ipam/host-local"),
)
ETCD = Module("etcd", {"etcd": "go.etcd.io/etcd/server/v3"})
COREDNS = Module("coredns", {"coredns": "."})
HELM = Module("helm", {"helm": "helm.sh/helm/v4/cmd/helm"})

MODULES = (ETCD, RUNC, CNI, CONTAINERD, COREDNS, KUBERNETES, HELM)
