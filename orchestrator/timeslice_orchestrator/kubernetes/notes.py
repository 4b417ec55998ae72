"""About which object an event is."""

from __future__ import annotations

from timeslice_api.kinds.names import API_VERSION, KIND_GROUP

from timeslice_orchestrator.kubernetes.claims import Claim
from timeslice_orchestrator.kubernetes.events import Regarding
from timeslice_orchestrator.kubernetes.pods import Pod


def of_pod(pod: Pod) -> Regarding:
    """A pod."""
    return Regarding("v1", "Pod", pod.namespace, pod.name, pod.uid)


def of_claim(claim: Claim) -> Regarding:
    """A claim."""
    return Regarding("resource.k8s.io/v1", "ResourceClaim", claim.namespace, claim.name, claim.uid)


def of_group(name: str, uid: str) -> Regarding:
    """A TimesliceGroup."""
    return Regarding(API_VERSION, KIND_GROUP, "", name, uid)
