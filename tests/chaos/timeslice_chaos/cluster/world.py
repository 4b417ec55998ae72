"""The chart as an administrator installs it, and jobs in pods that share the GPUs of two nodes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from containers import main_process, main_processes
from installation import Installation
from kube_cluster import Cluster
from kube_cluster.errors import ClusterError
from reading import Object
from sharing import Groups
from team import Team
from waits import START_S, true, until

from timeslice_chaos.cluster.ends import Ends
from timeslice_chaos.cluster.jobs import PLACES, SEATS, manifests_of, program
from timeslice_chaos.cluster.leftovers import leftovers
from timeslice_chaos.cluster.places import Places
from timeslice_chaos.log import Log
from timeslice_chaos.process import ChaosError, eventually

LEASE = {"ttlSeconds": 10, "graceSeconds": 5}  # short, so that what a killed process held is free within seconds


class ClusterWorld:
    """Use `living`.

    Attributes:
        jobs: what their processes do.
        machinery: held by whoever stops or restarts programs of the cluster.
    """

    def __init__(self, folder: Path, cluster: Cluster) -> None:
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.log = Log(self.logs, "world")
        self.cluster, self.installation = cluster, Installation(cluster)
        self.machinery = threading.Lock()
        self.team, self.group_id = Team(cluster, f"chaos-{uuid4().hex[:6]}"), ""
        self._groups = Groups(cluster)
        self._places = Places(cluster)
        self.jobs = self._places.jobs
        self._ends = Ends(self.log, self.jobs.said_goodbye)
        self._stopped: set[int] = set()
        self._claims: set[str] = set()

    def start(self) -> None:
        """Everything runs on return, or is about to."""
        self.installation.ensure()
        self._places.furnish()
        self.group_id = self._groups.create("chaos", seats=SEATS, lease=LEASE)
        self.team.create()
        self.team.apply(program(), *(made for place in PLACES for made in manifests_of(place, self.group_id)))

    def mend(self) -> None:
        """Undoes what a fault has left; the rest is for Kubernetes. ChaosError when the cluster itself broke."""
        self.go_on()
        for node in self.cluster.nodes.values():
            node.gpus.control.clear_faults()
        for name in self.cluster.programs:
            if not self.cluster.ledger.is_alive(name):
                raise ChaosError(f"{name} has ended: {self.cluster.ledger.tail(name)}")

    def served(self, since: float, within_s: float) -> float | None:
        """When every process of a job had been granted after `since`; None when some were not in time."""
        if not eventually(lambda: len(self.jobs.granted(since)) == len(PLACES), within_s):
            return None
        return max(self.jobs.granted(since).values())

    def settle(self) -> None:
        """Everything is ready. Where a container was started again there is a new pod: the kubelet would wait ever
        longer before it starts the old one's once more."""
        self.cluster.wait_for_nodes(limit_s=START_S)
        self._wait_ready()
        self._take_note()
        worn = [pod for pod in self._pods() if _restarts(pod)]
        for pod in worn:
            self.delete(pod)
        uids = {pod["metadata"]["uid"] for pod in worn}
        gone = true(lambda: not uids & {pod["metadata"]["uid"] for pod in self._pods()})
        until("old pods are there", gone, limit_s=START_S)
        self._wait_ready()
        self._take_note()

    def group(self) -> dict[str, Any]:
        """The status of the jobs' group."""
        return self._groups.status(self.group_id)

    def raw_group(self) -> Object:
        """The whole object."""
        return self._groups.get(self.group_id)

    def write_status(self, status: Object, *, version: str = "") -> None:
        """Overwrites the group's, with a version only if it is still of that one. ClusterError when that is refused."""
        metadata = {"metadata": {"resourceVersion": version}} if version else {}
        patch = json.dumps({**metadata, "status": status})
        how = ("--subresource=status", "--type=merge", f"--patch={patch}")
        self.cluster.kubectl("patch", "timeslicegroups", self.group_id, *how)

    def leader(self) -> Object:
        """The pod that leads. ClusterError while none does."""
        pods, name = self.installation.orchestrator_pods(), self.installation.leader()
        if name not in pods:
            raise ClusterError("nobody leads")
        return pods[name]

    def node_pod(self, node: str) -> Object:
        """Ours on that node. ClusterError while there is none."""
        pods = self.installation.node_pods()
        if node not in pods:
            raise ClusterError(f"no pod of ours on {node}")
        return pods[node]

    def main_pid(self, pod: Object) -> int:
        """Of its container. ClusterError when that does not run."""
        try:
            return main_process(self.cluster, pod)
        except (KeyError, ValueError) as error:
            raise ClusterError(f"pod {pod['metadata']['name']} does not run") from error

    def delete(self, pod: Object, *options: str) -> None:
        """Asks for it, and does not wait."""
        metadata = pod["metadata"]
        arguments = (f"--namespace={metadata['namespace']}", metadata["name"], "--ignore-not-found", "--wait=false")
        self.cluster.kubectl("delete", "pod", *arguments, *options)

    def kill(self, pid: int, name: str) -> None:
        """SIGKILL."""
        self.log.say("kills", pid=pid, name=name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    def stop(self, pid: int, name: str) -> None:
        """SIGSTOP, until `go_on`."""
        self._stopped.add(pid)
        self.log.say("stops", pid=pid, name=name)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)

    def go_on(self, *pids: int) -> None:
        """SIGCONT for these, or all that were stopped. A kubelet may have killed one that answered nobody."""
        for pid in pids or tuple(self._stopped):
            self._stopped.discard(pid)
            try:
                os.kill(pid, signal.SIGCONT)
            except ProcessLookupError:
                self.log.say("kills", pid=pid, name="the kubelet")

    def cut_power(self, name: str) -> None:
        """All that runs on that node ends, and it starts again."""
        for pid in main_processes(self.cluster.nodes[name]).values():
            self.log.say("kills", pid=pid, name="power cut")
        self.cluster.nodes[name].reboot()

    def end(self) -> list[str]:
        """Ends all jobs in order. What is left behind, in words."""
        self.team.kubectl("delete", "deployments", "--all", "--wait=false")
        left = leftovers(self.cluster, self.team, group=self.group, claims=self._claims)
        self._take_note()
        return left

    def close(self) -> None:
        """The jobs and their group are gone, all logs are kept."""
        self.go_on()
        for remove in (self.team.remove, self._groups.remove):
            with contextlib.suppress(AssertionError, ClusterError):
                remove()
        self._places.collect(self.logs)
        self._places.clear()
        self.log.close()

    def _wait_ready(self) -> None:
        self.installation.wait_ready(limit_s=2 * START_S)
        until("pods of jobs do not run", self._not_running, limit_s=2 * START_S)

    def _not_running(self) -> str | None:
        phases = {pod["metadata"]["name"]: pod["status"].get("phase") for pod in self.team.pods()}
        return None if list(phases.values()) == ["Running"] * len(PLACES) else str(phases)

    def _pods(self) -> list[Object]:
        ours = self.installation
        return [*ours.node_pods().values(), *ours.orchestrator_pods().values(), *self.team.pods()]

    def _take_note(self) -> None:
        """Of processes and containers that have ended, and of claims. ClusterError when nobody can be asked."""
        for process in self.jobs.departed():
            self.log.say("gone", pid=process.pid)
        for node in self.cluster.nodes.values():
            self._ends.run(main_processes(node))
        for pod in self._pods():
            self._ends.take(pod)
        self._claims |= {claim["metadata"]["uid"] for claim in self.team.claims()}


def _restarts(pod: Object) -> int:
    return sum(status["restartCount"] for status in pod["status"].get("containerStatuses") or ())


@contextlib.contextmanager
def living(folder: Path) -> Iterator[ClusterWorld]:
    """A world on the cluster $TIMESLICE_E2E_CLUSTER, else `timeslice`; of its jobs nothing is left after the block."""
    cluster = Cluster(os.environ.get("TIMESLICE_E2E_CLUSTER", "timeslice"))
    if not cluster.is_up():
        raise ChaosError(f"cluster {cluster.name} is not up: run ./hack/cluster up --name {cluster.name}")
    for node in cluster.nodes.values():
        if not node.gpus.trace.exists():
            raise ChaosError(f"the GPUs of {node.name} tell nothing: bring the cluster down, and up again")
    world = ClusterWorld(folder, cluster)
    try:
        world.start()
        yield world
    except (AssertionError, ClusterError) as error:
        raise ChaosError(str(error)) from error
    finally:
        world.close()
