"""The chart on the test cluster, as an administrator installs it."""

from __future__ import annotations

import hashlib
from functools import cached_property
from pathlib import Path

from kube_cluster import Cluster
from kube_cluster.errors import ClusterError
from reading import DAEMON_SETS, DEPLOYMENTS, LEASES, PODS, SECRETS, SLICES, Object, objects, one
from waits import START_S, until

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "deployments/helm/timeslice"
VALUES = ROOT / "hack/kube_cluster/values.yaml"
NAMESPACE = "timeslice"
IMAGE = "docker.io/library/timeslice:dev"
_DEPLOYED = "timeslice.dev/deployed"  # annotation of pods: what chart, values and image they came from
DRIVER = "gpu.timeslice.dev"


class Installation:
    """Release `timeslice` in namespace `timeslice`, with the images that are on the workers."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def ensure(self) -> None:
        """It is there as the working tree has it, and ready; nothing is done when it was."""
        if self._deployed() != self._wanted:
            self.install()
        self.wait_ready()

    def install(self, *options: str) -> None:
        """Installs it, or upgrades it as docs/kubernetes.md says. It is ready on return."""
        marks = [f"--set-string={part}.podAnnotations.timeslice\\.dev/deployed={self._wanted}" for part in _PARTS]
        if self._deployed():
            self._cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CHART / "crds"))
        flags = [f"--namespace={NAMESPACE}", "--create-namespace", f"--values={VALUES}", *marks, *options]
        self._cluster.helm("upgrade", "--install", "timeslice", str(CHART), *flags)
        self.wait_ready()

    def uninstall(self) -> None:
        """By helm. ClusterError with the hook's word when claims are in its way."""
        self._cluster.helm("uninstall", "timeslice", f"--namespace={NAMESPACE}", "--wait", limit_s=180)

    def wait_ready(self, *, limit_s: float = START_S) -> None:
        """All pods are of the last revision and ready, the old ones have gone, and each worker publishes its GPUs."""
        until("the installation is not ready", self._missing, limit_s=limit_s)

    def node_pods(self) -> dict[str, Object]:
        """The DaemonSet's pods by node; without those that are ending or have no node yet."""
        return {pod["spec"]["nodeName"]: pod for pod in self._pods("node") if "nodeName" in pod["spec"]}

    def orchestrator_pods(self) -> dict[str, Object]:
        """The Deployment's pods by name; without those that are ending."""
        return {pod["metadata"]["name"]: pod for pod in self._pods("orchestrator")}

    def leader(self) -> str:
        """Name of the pod that leads; empty while none does."""
        holder = one(self._cluster, LEASES, "timeslice-orchestrator", namespace=NAMESPACE)
        identity = str(((holder.get("spec") or {}).get("holderIdentity")) or "")
        return next((name for name in self.orchestrator_pods() if identity.startswith(name)), "")

    def certificate(self) -> Object:
        """What Helm has made for the orchestrator, by file."""
        made: Object = one(self._cluster, SECRETS, "timeslice-orchestrator-tls", namespace=NAMESPACE)["data"]
        return made

    def read(self, pod: str, path: str) -> str:
        """A file in its container."""
        return self._cluster.kubectl("exec", f"--namespace={NAMESPACE}", pod, "--", "cat", path)

    def logs(self, pod: str, *options: str) -> str:
        """What it has said."""
        return self._cluster.kubectl("logs", f"--namespace={NAMESPACE}", pod, *options)

    def said(self, *, within_s: float) -> str:
        """The last lines of each pod's log of so many seconds, as far as they can be had; for people."""
        try:
            pods = objects(self._cluster, PODS, namespace=NAMESPACE, labels=_ALL)
        except (ClusterError, OSError) as error:  # the cluster has gone, with its certificates
            return f"nobody can be asked: {error}"
        options = (f"--since={within_s:.0f}s", "--tail=60", "--prefix")
        return "\n".join(self._last_words(pod["metadata"]["name"], *options) for pod in pods)

    def _last_words(self, pod: str, *options: str) -> str:
        try:
            return self.logs(pod, *options)
        except ClusterError as error:
            return str(error)

    @cached_property
    def _wanted(self) -> str:
        found = hashlib.sha256("".join(self._image(name) for name in self._cluster.nodes).encode())
        for path in sorted([VALUES, *(path for path in CHART.rglob("*") if path.is_file())]):
            found.update(path.read_bytes())
        return found.hexdigest()[:16]

    def _image(self, node: str) -> str:
        """Its digest. What is not there is built and brought there by hack/cluster images."""
        listed = self._cluster.nodes[node].ctr("images", "ls", f"name=={IMAGE}").splitlines()[1:]
        assert listed, f"{node} has no image {IMAGE}: run ./hack/cluster images"
        return listed[0].split()[2]

    def _deployed(self) -> str:
        raw = one(self._cluster, DAEMON_SETS, "timeslice-node", namespace=NAMESPACE)
        if not raw:
            return ""
        annotations = raw["spec"]["template"]["metadata"].get("annotations") or {}
        return str(annotations.get(_DEPLOYED) or "by somebody else")

    def _pods(self, component: str) -> list[Object]:
        labels = f"app.kubernetes.io/component={component}"
        found = objects(self._cluster, PODS, namespace=NAMESPACE, labels=labels)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def _missing(self) -> str | None:
        nodes = one(self._cluster, DAEMON_SETS, "timeslice-node", namespace=NAMESPACE)
        orchestrator = one(self._cluster, DEPLOYMENTS, "timeslice-orchestrator", namespace=NAMESPACE)
        if not nodes or not orchestrator:
            return "not installed"
        wanted = len(self._cluster.nodes)
        counts = nodes["status"]
        fresh = [counts.get(key, 0) for key in ("updatedNumberScheduled", "numberReady", "desiredNumberScheduled")]
        if nodes["metadata"]["generation"] != counts.get("observedGeneration") or fresh != [wanted] * 3:
            return f"node pods: {counts}"
        replicas, counts = orchestrator["spec"]["replicas"], orchestrator["status"]
        fresh = [counts.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        if orchestrator["metadata"]["generation"] != counts.get("observedGeneration") or fresh != [replicas] * 3:
            return f"orchestrator pods: {counts}"
        if len(pods := objects(self._cluster, PODS, namespace=NAMESPACE, labels=_ALL)) != wanted + replicas:
            return f"{len(pods)} pods; some are ending"
        return self._unpublished()

    def _unpublished(self) -> str | None:
        slices = objects(self._cluster, SLICES, fields=f"spec.driver={DRIVER}")
        missing = set(self._cluster.nodes) - {each["spec"].get("nodeName") for each in slices}
        return f"no slices of {', '.join(sorted(missing))}" if missing else None


_PARTS = ("node", "orchestrator")
_ALL = f"app.kubernetes.io/component in ({','.join(_PARTS)})"
