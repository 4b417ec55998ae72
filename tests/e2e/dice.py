"""The example driver on the nodes of the test cluster, and pods that claim its dice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from containers import main_process
from kube_cluster import Cluster, WorkerNode
from kube_cluster.node_files import PAUSE_IMAGE
from kube_cluster.waiting import wait_for

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "dra-driver"
PROGRAM = EXAMPLE / "driver.py"
DESCRIBED = Path(__file__).resolve().parent / "described_dice.py"
DRIVER = "dice.example.com"
REGISTRY = Path("/var/lib/kubelet/plugins_registry")
_LIMIT_S = 60.0
_RUNNING_S = 150.0  # kubelet repeats a prepare that failed only after 60 to 90 s


class Dice:
    """One driver process on one node."""

    def __init__(
        self, cluster: Cluster, node: WorkerNode, *, dice: int = 4, pod_uid: str = "", program: Path = PROGRAM
    ) -> None:
        options = ["--kubeconfig", str(cluster.kubeconfig), *(["--pod-uid", pod_uid] if pod_uid else [])]
        command = [sys.executable, str(program), node.name, str(dice), *options]
        self.log = cluster.folder.logs / f"dice-{node.name}{pod_uid[:8]}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(node.inside(command), stdout=log, stderr=log, env=_environment())
        self.socket = f"{DRIVER}-{pod_uid}-reg.sock" if pod_uid else f"{DRIVER}-reg.sock"

    def wait_registered(self) -> None:
        """kubelet has said that it uses it."""

        def missing() -> str | None:
            if self._process.poll() is not None:
                return f"it has ended: {self.log.read_text()[-2000:]}"
            return None if "registered with kubelet" in self.log.read_text() else "not registered"

        wait_for("the driver is not registered", missing, limit_s=_LIMIT_S)

    def send(self, number: signal.Signals) -> None:
        """Sends it that."""
        self._process.send_signal(number)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, if it has not ended yet."""
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(20)


@contextmanager
def running(
    cluster: Cluster, node: WorkerNode, *, dice: int = 4, pod_uid: str = "", program: Path = PROGRAM
) -> Iterator[Dice]:
    """The driver, registered."""
    driver = Dice(cluster, node, dice=dice, pod_uid=pod_uid, program=program)
    try:
        driver.wait_registered()
        yield driver
    finally:
        driver.stop()


class Player:
    """A pod of the example, which keeps running, with its claim."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self.name = name
        template, pod = yaml.safe_load_all((EXAMPLE / "pod.yaml").read_text())
        template["metadata"]["name"] = name
        pod["metadata"]["name"] = name
        pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] = name
        pod["spec"]["terminationGracePeriodSeconds"] = 1
        (container,) = pod["spec"]["containers"]
        del container["command"]
        container |= {"image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
        cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump_all([template, pod]))

    @property
    def pod(self) -> dict[str, Any]:
        """As the API server has it; empty when it is gone."""
        text = self._cluster.kubectl("get", "pod", self.name, "-o", "json", "--ignore-not-found")
        found: dict[str, Any] = json.loads(text or "{}")
        return found

    def wait_running(self) -> None:
        """Its container runs."""

        def missing() -> str | None:
            status = self.pod["status"]
            return None if status.get("phase") == "Running" else json.dumps(status)[-1500:]

        wait_for(f"pod {self.name} does not run", missing, limit_s=_RUNNING_S)

    def environment(self) -> dict[str, str]:
        """Of the container's process."""
        entries = Path(f"/proc/{main_process(self._cluster, self.pod)}/environ").read_text().split("\0")
        return dict(entry.split("=", 1) for entry in entries if "=" in entry)

    def read(self, path: str) -> str:
        """A file, as the container sees it."""
        return Path(f"/proc/{main_process(self._cluster, self.pod)}/root/{path}").read_text()

    def health(self) -> dict[str, tuple[str, str]]:
        """Of the container's devices, as the pod's status has it, with the message."""
        (status,) = self.pod["status"]["containerStatuses"]
        found = [each for entry in status.get("allocatedResourcesStatus") or () for each in entry["resources"]]
        return {each["resourceID"]: (each["health"], each.get("message", "")) for each in found}

    def delete(self, *, wait: bool = True) -> None:
        """Of the pod; its template stays."""
        self._cluster.kubectl("delete", "pod", self.name, "--ignore-not-found", f"--wait={str(wait).lower()}")

    def clean_up(self) -> None:
        """Nothing of it stays."""
        self.delete()
        self._cluster.kubectl("delete", "resourceclaimtemplate", self.name, "--ignore-not-found")


def slices(cluster: Cluster) -> dict[str, list[str]]:
    """Names of the driver's devices by UID of the slice."""
    items = json.loads(cluster.kubectl("get", "resourceslices", "-o", "json"))["items"]
    ours = [item for item in items if item["spec"]["driver"] == DRIVER]
    return {item["metadata"]["uid"]: [device["name"] for device in item["spec"].get("devices", ())] for item in ours}


def specs(node: WorkerNode) -> list[str]:
    """Names of the driver's CDI specs on the node."""
    return [path for path in node.run("ls", "/var/run/cdi").split() if path.startswith(DRIVER)]


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if key != "KUBECONFIG"} | {"PYTHONUNBUFFERED": "1"}
