"""A whole cluster: up, down, status, and the handles that tests need."""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from kube_cluster import network as networks
from kube_cluster.api_client import ApiClient
from kube_cluster.building import missing_modules, program
from kube_cluster.cache import cache_folder
from kube_cluster.cgroups import Groups
from kube_cluster.control_plane import API_SERVER, PROGRAMS, ControlPlane, first_objects
from kube_cluster.emulated_gpus import EmulatedGpus
from kube_cluster.errors import ClusterError
from kube_cluster.layout import WORKERS, Addresses, ClusterFolder, check_visible
from kube_cluster.machine import run
from kube_cluster.modules import HELM, KUBERNETES
from kube_cluster.network import CONTROL_PLANE, Network
from kube_cluster.node import Surroundings, WorkerNode
from kube_cluster.node_files import NodeFiles
from kube_cluster.pause_image import pause_image
from kube_cluster.processes import Ledger, Program, end_process
from kube_cluster.settings import Settings
from kube_cluster.toolchain import TO_RUN, require
from kube_cluster.waiting import failure, wait_for

_API_LIMIT_S = 90.0
_NODES_LIMIT_S = 90.0


class Cluster:
    """Named so that several can be there at once. Everything needs root."""

    def __init__(self, name: str = "timeslice") -> None:
        self.folder = ClusterFolder(name)
        self.ledger = Ledger(self.folder.processes, self.folder.logs)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def kubeconfig(self) -> Path:
        """Of the administrator."""
        return self.folder.kubeconfig

    @cached_property
    def settings(self) -> Settings:
        """What it was brought up with. ClusterError when it is not up."""
        if not self.folder.settings.exists():
            raise ClusterError(f"cluster {self.name} is not up: run hack/cluster up")
        return Settings.load(self.folder.settings)

    @property
    def addresses(self) -> Addresses:
        return Addresses(self.settings.octet)

    @property
    def api(self) -> ApiClient:
        return ApiClient(str(self.addresses.control_plane), self.folder.certificates)

    @property
    def control_plane(self) -> ControlPlane:
        namespace = self._network.namespace_file(CONTROL_PLANE)
        return ControlPlane(self.folder, self.addresses, self.settings.parsed_gates(), namespace)

    @property
    def nodes(self) -> dict[str, WorkerNode]:
        """The workers by name."""
        return {name: self._node(index, name) for index, name in enumerate(WORKERS)}

    @property
    def programs(self) -> list[str]:
        """Names of all that has to run."""
        return [*PROGRAMS, *(part for node in self.nodes.values() for part in node.programs)]

    def kubectl(self, *arguments: str, given: str | None = None, limit_s: float = 60.0) -> str:
        """Output of kubectl, of the cluster's version."""
        tool = program(KUBERNETES, "kubectl")
        return run([tool, f"--kubeconfig={self.kubeconfig}", *arguments], given=given, limit_s=limit_s)

    def helm(self, *arguments: str, limit_s: float = 120.0) -> str:
        """Output of helm."""
        return run([program(HELM, "helm"), f"--kubeconfig={self.kubeconfig}", *arguments], limit_s=limit_s)

    def load(self, archive: Path) -> None:
        """Imports an image archive on every worker."""
        if not archive.exists():
            raise ClusterError(f"{archive}: no such file")
        _at_once([partial(node.load, archive.resolve()) for node in self.nodes.values()])

    def stop(self, component: str) -> None:
        """Ends one program of the control plane, such as kube-apiserver, which would wait long for open watches."""
        self.ledger.end(component, patience_s=2)

    def start(self, component: str) -> None:
        """Starts it again; the API server is ready on return."""
        home = self._groups.home(CONTROL_PLANE)
        self.ledger.start(Program(component, self.control_plane.commands()[component], home))
        if component == API_SERVER:
            self._wait_for_api()

    def is_up(self) -> bool:
        """Whether every program of it runs."""
        return self.folder.complete.exists() and all(self.ledger.is_alive(name) for name in self.programs)

    def up(self, wishes: Settings) -> bool:
        """Brings it up; False when it was up. What an earlier one left is removed first.

        ClusterError when something does not come up, with the end of its log; then it stays as it is, to be looked at.
        """
        _check_machine(self.folder)
        with self._alone():
            if self.is_up():
                if not self.settings.same_wishes(wishes):
                    raise ClusterError(f"cluster {self.name} is up with other settings: hack/cluster down first")
                return False
            self._remove()
            self._create(wishes)
            return True

    def down(self) -> None:
        """Leaves nothing of it."""
        with self._alone():
            self._remove()
        self.folder.lock.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.folder.root.rmdir()

    @property
    def _groups(self) -> Groups:
        return Groups(self.folder.cgroup)

    @property
    def _network(self) -> Network:
        return Network(self.folder, self.addresses)

    def _node(self, index: int, name: str) -> WorkerNode:
        folder = self.folder.node(name)
        around = Surroundings(
            ledger=self.ledger,
            groups=self._groups,
            network=self._network.namespace_file(name),
            gates=self.settings.parsed_gates(),
            kubeconfig=self.folder.configuration / f"{name}.kubeconfig",
            address=str(self.addresses.worker(index)),
        )
        gpus = EmulatedGpus(folder, self.settings.gpus, self.settings.gpu_memory, seed=f"{self.name}/{name}")
        return WorkerNode(folder, NodeFiles(self.folder, self.addresses, index, folder), gpus, around)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """One up or down at a time."""
        self.folder.root.mkdir(parents=True, exist_ok=True)
        with self.folder.lock.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as busy:
                raise ClusterError(f"another up or down of cluster {self.name} is under way") from busy
            yield

    @contextlib.contextmanager
    def _choosing_network(self) -> Iterator[None]:
        """One cluster at a time: what another has chosen is known by its routes, once it has made them."""
        folder = os.open(self.folder.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield
        finally:
            os.close(folder)

    def _create(self, wishes: Settings) -> None:
        wishes.parsed_gates()
        for path in (self.folder.path, self.folder.processes, self.folder.logs, self.folder.configuration):
            path.mkdir()
        with self._choosing_network():
            octet = networks.free_octet(networks.routed_networks())
            self.settings = replace(wishes, octet=octet)
            self.settings.save(self.folder.settings)
            self._groups.create(CONTROL_PLANE)
            self._network.create()
        plane = self.control_plane
        plane.issue_certificates()
        commands = plane.commands()
        nodes = list(self.nodes.values())
        self.start("etcd")
        _at_once([*(partial(_prepare, node) for node in nodes), partial(self.start, API_SERVER)])
        for name in commands:
            if not self.ledger.is_alive(name):
                self.start(name)
        for node in nodes:
            node.start_kubelet()
        self.kubectl("apply", "--filename=-", given=json.dumps(first_objects()))
        self.wait_for_nodes()
        self.folder.complete.touch()

    def _wait_for_api(self) -> None:
        def ready() -> str | None:
            self.ledger.require("etcd", API_SERVER)
            return failure(lambda: self.api.get("/readyz"))

        wait_for("the API server is not ready", ready, limit_s=_API_LIMIT_S)

    def wait_for_nodes(self, *, limit_s: float = _NODES_LIMIT_S) -> None:
        """Until all workers are Ready and every program runs."""

        def ready() -> str | None:
            self.ledger.require(*self.programs)
            conditions = self.api.node_conditions()
            missing = {name: conditions.get(name, "has not registered") for name in WORKERS}
            return "; ".join(f"{name}: {why}" for name, why in missing.items() if why) or None

        wait_for("nodes are not Ready", ready, limit_s=limit_s)

    def _remove(self) -> None:
        """In this order: whoever could start something, everything else, then what they lived in."""
        folder = self.folder
        with contextlib.suppress(ClusterError):  # brought up half, and never told of its network
            addresses = Addresses(Settings.load(folder.settings).octet)
            networks.remove_interface(addresses)
        for name in self.ledger.names():
            identity = self.ledger.identity(name)
            if identity is not None:
                end_process(identity, patience_s=0)
        groups = self._groups
        if groups.exists():
            groups.kill()
            groups.remove()
        networks.remove(folder)
        _check_no_mounts(folder.path)
        if folder.path.exists():
            shutil.rmtree(folder.path)
        self.__dict__.pop("settings", None)


def _prepare(node: WorkerNode) -> None:
    node.create()
    node.boot()
    node.wait_for_containerd()
    node.load(pause_image())


def _at_once(tasks: Sequence[Callable[[], object]]) -> None:
    with ThreadPoolExecutor(len(tasks)) as pool:
        for result in [pool.submit(task) for task in tasks]:
            result.result()


def _check_machine(folder: ClusterFolder) -> None:
    if os.geteuid() != 0:
        raise ClusterError("the cluster needs root: network namespaces, mounts and control groups")
    require(TO_RUN)
    for path in (folder.path, cache_folder()):
        check_visible(path)
    if missing := missing_modules():
        raise ClusterError(f"not built yet: {', '.join(module.name for module in missing)}. Run hack/cluster build")


def _check_no_mounts(path: Path) -> None:
    """Deleting a folder must not reach through a mount into something else."""
    prefix = f"{path}/"
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    if found := [mount for mount in mounts if mount.startswith(prefix)]:
        raise ClusterError(f"something is mounted below {path}: {', '.join(found)}")
