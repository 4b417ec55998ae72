"""A namespace of the test cluster, as those see it who work in it."""

from __future__ import annotations

import json

import manifests
import yaml
from kube_cluster import Cluster
from reading import CLAIMS, EVENTS, PODS, Object, objects, one
from waits import SOON_S, START_S, until

_ENDED = ("Succeeded", "Failed")


class Team:
    """Applies what its people write, and looks at what they are shown."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def create(self) -> None:
        """The namespace, with the programs of tests in it."""
        self.kubectl("create", "namespace", self.namespace)
        self.apply(manifests.programs())

    def remove(self) -> None:
        """Pods and claims are gone on return; the namespace goes on its own."""
        for kinds in ("deployments,replicasets,statefulsets,jobs", "pods", "resourceclaims"):
            self.kubectl("delete", kinds, "--all", "--wait=false")
        until(f"{self.namespace} has claims or pods still", self._left, limit_s=START_S)
        self.kubectl("delete", "namespace", self.namespace, "--wait=false")

    def kubectl(self, *arguments: str, given: str | None = None, limit_s: float = 60) -> str:
        """Output of kubectl in the namespace. ClusterError with what it said when it fails."""
        return self.cluster.kubectl(f"--namespace={self.namespace}", *arguments, given=given, limit_s=limit_s)

    def apply(self, *made: Object) -> None:
        """ClusterError with the API server's words when one of them is refused."""
        self.kubectl("apply", "-f", "-", given=yaml.safe_dump_all(made))

    def delete(self, kind: str, name: str, *options: str) -> None:
        """Returns when it has gone, unless an option says --wait=false."""
        self.kubectl("delete", kind, name, *options, limit_s=START_S)

    def evict(self, pod: str) -> None:
        """As a drain of its node does it; does not wait."""
        whom = {"name": pod, "namespace": self.namespace}
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": whom}
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        self.kubectl("create", f"--raw={path}", "--filename=-", given=json.dumps(eviction))

    def pod(self, name: str) -> Object:
        """Empty when there is none."""
        return one(self.cluster, PODS, name, namespace=self.namespace)

    def pods(self, labels: str = "") -> list[Object]:
        """All, or those with the labels."""
        return objects(self.cluster, PODS, namespace=self.namespace, labels=labels)

    def phase(self, pod: str) -> str:
        """Pending, Running, Succeeded, Failed; empty when there is no such pod."""
        return str((self.pod(pod).get("status") or {}).get("phase") or "")

    def claims(self) -> list[Object]:
        """All of the namespace."""
        return objects(self.cluster, CLAIMS, namespace=self.namespace)

    def claim(self, pod: str) -> Object:
        """The claim of the pod's entry `gpu`; empty when there is none (yet)."""
        raw = self.pod(pod)
        entries = {each["name"]: each for each in (raw.get("spec") or {}).get("resourceClaims") or ()}
        made = {each["name"]: each for each in (raw.get("status") or {}).get("resourceClaimStatuses") or ()}
        entry = {**entries.get("gpu", {}), **made.get("gpu", {})}
        name = entry.get("resourceClaimName")
        return one(self.cluster, CLAIMS, name, namespace=self.namespace) if name else {}

    def devices(self, pod: str) -> list[str]:
        """What the scheduler gave its claim, as "node-a/gpu-0-GROUP"; none while it waits."""
        return devices_of(self.claim(pod))

    def events(self, name: str) -> list[str]:
        """Of the object with that name, as "Reason: text"; newest last."""
        found = objects(self.cluster, EVENTS, namespace=self.namespace, fields=f"regarding.name={name}")
        found.sort(key=lambda each: str(each["metadata"]["creationTimestamp"]))
        return [f"{each.get('reason')}: {each.get('note')}" for each in found]

    def logs(self, pod: str, *options: str) -> str:
        """What its container has said; empty when it has not started."""
        status = self.pod(pod).get("status") or {}
        started = [each for each in status.get("containerStatuses") or () if "waiting" not in each["state"]]
        return self.kubectl("logs", pod, *options) if started else ""

    def wait_running(self, *pods: str, limit_s: float = START_S) -> None:
        """They run, or have run."""
        for pod in pods:
            until(f"pod {pod} does not run", lambda: self._unlike(pod, "Running", "Succeeded"), limit_s=limit_s)  # noqa: B023  called before the next

    def wait_succeeded(self, *pods: str, limit_s: float = START_S) -> None:
        """They have ended well; an assertion fails at once with the log of one that did not."""
        for pod in pods:
            until(f"pod {pod} has not ended", lambda: self._unlike(pod, *_ENDED), limit_s=limit_s)  # noqa: B023
            assert self.phase(pod) == "Succeeded", f"pod {pod} failed\n{self.logs(pod)[-3000:]}"

    def wait_gone(self, pod: str, *, limit_s: float = START_S) -> None:
        """There is no such pod any more."""
        until(f"pod {pod} is still there", lambda: self.phase(pod) or None, limit_s=limit_s)

    def wait_devices(self, pod: str, *, limit_s: float = SOON_S) -> list[str]:
        """Until its claim is allocated."""
        until(f"{pod} has no GPU", lambda: None if self.devices(pod) else self._why(pod), limit_s=limit_s)
        return self.devices(pod)

    def wait_unschedulable(self, pod: str, *, limit_s: float = SOON_S) -> None:
        """The scheduler has looked at it and has nothing for it."""

        def missing() -> str | None:
            conditions = (self.pod(pod).get("status") or {}).get("conditions") or ()
            refused = any(each.get("reason") == "Unschedulable" for each in conditions)
            return None if refused and not self.devices(pod) else f"{self.devices(pod)}"

        until(f"{pod} does not wait", missing, limit_s=limit_s)

    def wait_event(self, name: str, text: str, *, limit_s: float = SOON_S) -> str:
        """The event of the object in which the text is, as "Reason: text"."""
        found: list[str] = []

        def missing() -> str | None:
            seen = self.events(name)
            found[:] = [each for each in seen if text in each]
            return None if found else f"{seen}"

        until(f"{name} has no event {text!r}", missing, limit_s=limit_s)
        return found[-1]

    def wait_said(self, pod: str, text: str, *, limit_s: float = START_S) -> None:
        """Its log has the text."""

        def missing() -> str | None:
            said = self.logs(pod)
            return None if text in said else f"{self._why(pod)}\n{said[-1500:]}"

        until(f"pod {pod} has not said {text!r}", missing, limit_s=limit_s)

    def _unlike(self, pod: str, *phases: str) -> str | None:
        phase = self.phase(pod)
        assert not (phase in _ENDED and phase not in phases), f"pod {pod}: {phase}\n{self.logs(pod)[-3000:]}"
        return None if phase in phases else self._why(pod)

    def _why(self, pod: str) -> str:
        status = self.pod(pod).get("status") or {}
        return json.dumps([status.get("phase"), status.get("message"), self.events(pod)], indent=1)

    def _left(self) -> str | None:
        left = [each["metadata"]["name"] for each in [*self.pods(), *self.claims()]]
        return ", ".join(left) or None


def devices_of(claim: Object) -> list[str]:
    """What a claim was given, as "node-a/gpu-0-GROUP"; none while it waits."""
    allocation = (claim.get("status") or {}).get("allocation") or {}
    results = (allocation.get("devices") or {}).get("results") or ()
    return sorted(f"{each['pool']}/{each['device']}" for each in results)
