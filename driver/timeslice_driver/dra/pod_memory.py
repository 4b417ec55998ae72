"""Whether a pod may take the host memory into which its GPU state is parked. Pure.

The driver keeps a parked process's state in that process's own memory, so the limit of its container counts it, and one
that is too small gets the process killed in its first park.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from timeslice_api.kinds import bytes_of

from timeslice_driver.dra import refusals
from timeslice_driver.dra.records import ClaimRecord


def check_pod_memory(pod: Mapping[str, Any], claim: ClaimRecord) -> None:
    """Every container of the pod that uses the claim may take the snapshots of the devices it gets.

    Raises:
        RefusedError: PodMemory, for the first that may not.
    """
    spec, name = pod.get("spec") or {}, pod["metadata"]["name"]
    whole = _limit(spec)
    for container, needed in _users(pod, claim):
        own = _limit(container)
        if own is not None and own < needed:
            raise refusals.pod_memory(name, f"container {container['name']}", limit=own, needed=needed)
        if whole is not None and whole < needed:
            raise refusals.pod_memory(name, "the whole", limit=whole, needed=needed)


def _users(pod: Mapping[str, Any], claim: ClaimRecord) -> Iterator[tuple[Mapping[str, Any], int]]:
    """Containers that use the claim, and the bytes of snapshots that each may have to take."""
    spec = pod.get("spec") or {}
    entries = _entries(pod, claim.name)
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        uses = [use for use in (container.get("resources") or {}).get("claims") or () if use.get("name") in entries]
        requests = {use.get("request", "") for use in uses}
        devices = [device for device in claim.devices if "" in requests or device.request in requests]
        if uses:
            yield container, sum(device.host_memory for device in devices)


def _entries(pod: Mapping[str, Any], claim_name: str) -> set[str]:
    """The names by which the pod's containers call the claim."""
    direct = (pod.get("spec") or {}).get("resourceClaims") or ()
    generated = (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    return {each["name"] for each in (*direct, *generated) if each.get("resourceClaimName") == claim_name}


def _limit(holder: Mapping[str, Any]) -> int | None:
    limit = ((holder.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else bytes_of(limit, "limits.memory")
