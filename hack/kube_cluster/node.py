"""A worker: kubelet and containerd in namespaces of their own, with emulated GPUs."""

import shutil
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kube_cluster.building import module_folder, program
from kube_cluster.cgroups import Groups
from kube_cluster.emulated_gpus import EmulatedGpus
from kube_cluster.errors import ClusterError
from kube_cluster.layout import NodeFolder
from kube_cluster.machine import run
from kube_cluster.modules import CNI, CONTAINERD, KUBERNETES, RUNC
from kube_cluster.namespaces import holder_command, inside
from kube_cluster.node_files import NodeFiles
from kube_cluster.processes import Ledger, Program
from kube_cluster.waiting import failure, wait_for

_CONTAINERD_LIMIT_S = 20.0
_EMULATOR_LIMIT_S = 20.0


@dataclass(frozen=True)
class Surroundings:
    """What the cluster gives a worker. ``network`` is the file of the worker's network namespace."""

    ledger: Ledger
    groups: Groups
    network: Path
    gates: Mapping[str, bool]
    kubeconfig: Path
    address: str


class WorkerNode:
    """Starts and ends what runs on it; a test's way to restart, reboot, and look inside."""

    def __init__(self, folder: NodeFolder, files: NodeFiles, gpus: EmulatedGpus, around: Surroundings) -> None:
        self.folder = folder
        self.gpus = gpus
        self._files = files
        self._around = around

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def address(self) -> str:
        return self._around.address

    @property
    def boot_id(self) -> str:
        """As the kubelet reports it."""
        return self.folder.boot_id.read_text().strip()

    @property
    def programs(self) -> tuple[str, ...]:
        """Names in the ledger."""
        return tuple(f"{self.name}.{part}" for part in ("gpus", "namespaces", "containerd", "kubelet"))

    def create(self) -> None:
        """Folders, files and control groups, and the GPUs, which stay on over reboots."""
        around = self._around
        around.groups.create(self.name, for_pods=True)
        self.folder.path.mkdir()
        for path in (self.folder.var_lib, self.folder.var_log, self.folder.etc, self.folder.path / "etc.work"):
            path.mkdir(parents=True)
        self.folder.configuration.mkdir()
        self._files.write(plugins=module_folder(CNI), runtime=program(RUNC, "runc"), gates=around.gates)
        self.gpus.install()
        self._start("gpus", self.gpus.command(), environment=self.gpus.environment, group="control-plane")

    def boot(self) -> None:
        """Starts namespaces and containerd, with a new boot id and an empty /run."""
        shutil.rmtree(self.folder.run, ignore_errors=True)
        for name in ("containerd", "cdi", "netns", "timeslice"):
            (self.folder.run / name).mkdir(parents=True)
        self.folder.boot_id.write_text(f"{uuid.uuid4()}\n")
        self._start("namespaces", holder_command(self.folder, self._around.network), announces=True)
        self._start_containerd()

    def wait_for_containerd(self) -> None:
        """Until it serves; then the GPUs do as well."""

        def answers() -> str | None:
            self._around.ledger.require(f"{self.name}.containerd")
            return failure(lambda: self.ctr("version", limit_s=10))

        def gpus_answer() -> str | None:
            self._around.ledger.require(f"{self.name}.gpus")
            return failure(self.gpus.control.snapshot)

        wait_for(f"{self.name}: no GPUs", gpus_answer, limit_s=_EMULATOR_LIMIT_S)
        self.gpus.socket.chmod(0o777)  # as the device files are
        wait_for(f"{self.name}: containerd does not serve", answers, limit_s=_CONTAINERD_LIMIT_S)

    def start_kubelet(self) -> None:
        """Returns when it has been started, which is before the node is Ready."""
        command = [
            str(program(KUBERNETES, "kubelet")),
            f"--config={self._files.kubelet}",
            f"--kubeconfig={self._around.kubeconfig}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            "--node-labels=nvidia.com/gpu.present=true",  # as NVIDIA's feature discovery would
            "--v=2",
        ]
        self._start("kubelet", self.inside(command))

    def stop_kubelet(self) -> None:
        """Pods go on running."""
        self._around.ledger.end(f"{self.name}.kubelet")

    def restart_kubelet(self) -> None:
        """As ``systemctl restart kubelet``."""
        self.stop_kubelet()
        self.start_kubelet()

    def restart_containerd(self) -> None:
        """As ``systemctl restart containerd``: containers go on running."""
        self._around.ledger.end(f"{self.name}.containerd")
        self._start_containerd()
        self.wait_for_containerd()

    def power_off(self) -> None:
        """Kills everything on the node at once, but for the GPUs, which then belong to nobody."""
        self._around.groups.kill(self.name)
        for part in ("kubelet", "containerd", "namespaces"):
            self._around.ledger.kill(f"{self.name}.{part}")

    def reboot(self) -> None:
        """As after a power cut: all processes killed, /run lost, another boot id; disks are as they were."""
        self.power_off()
        self.boot()
        self.wait_for_containerd()
        self.start_kubelet()

    def inside(self, command: Sequence[str]) -> list[str]:
        """The command line that runs the command in the node's namespaces. ClusterError when the node is off."""
        holder = self._around.ledger.identity(f"{self.name}.namespaces")
        if holder is None or not holder.is_alive():
            raise ClusterError(f"{self.name} is off")
        return inside(holder.pid, command)

    def run(self, *command: str, limit_s: float = 60.0) -> str:
        """Output of a command in the node."""
        return run(self.inside(command), limit_s=limit_s)

    def ctr(self, *arguments: str, limit_s: float = 60.0) -> str:
        """Output of containerd's own client, in the namespace of Kubernetes' images and containers."""
        return run(
            [program(CONTAINERD, "ctr"), "-a", self.folder.containerd_socket, "-n", "k8s.io", *arguments],
            limit_s=limit_s,
        )

    def blobs(self) -> set[str]:
        """SHA-256 of everything in the content store, in hexadecimal."""
        return {line.removeprefix("sha256:") for line in self.ctr("content", "ls", "--quiet").split()}

    def load(self, archive: Path) -> None:
        """Imports the images of an archive."""
        self.ctr("images", "import", str(archive), limit_s=300)

    def _start_containerd(self) -> None:
        path = f"{module_folder(CONTAINERD)}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        command = [str(program(CONTAINERD, "containerd")), "--config", str(self._files.containerd)]
        self._start("containerd", self.inside(command), environment={"PATH": path})

    def _start(
        self,
        part: str,
        command: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        announces: bool = False,
        group: str | None = None,
    ) -> None:
        home = self._around.groups.home(group or self.name)
        name = f"{self.name}.{part}"
        self._around.ledger.start(Program(name, command, home, environment or {}, announces=announces))
