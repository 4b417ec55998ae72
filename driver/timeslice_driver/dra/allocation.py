"""What a claim's status says about our devices, from the raw object. Pure.

Schema: k8s.io/api/resource/v1, types.go (`AllocationResult`, `DeviceAllocationConfiguration`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from timeslice_api.kinds import bytes_of
from timeslice_api.kinds import names as kinds

FROM_CLASS: Final = "FromClass"


@dataclass(frozen=True)
class Share:
    """One of our devices, as the scheduler allocated it. `host_memory` is None where the result tells none."""

    request: str
    pool: str
    device: str
    share_id: str = ""
    host_memory: int | None = None

    @property
    def main_request(self) -> str:
        """Without the subrequest that was chosen of it."""
        return self.request.partition("/")[0]


@dataclass(frozen=True)
class Parameters:
    """An entry of opaque configuration for our driver; `requests` is empty when it is for all."""

    source: str
    requests: tuple[str, ...]
    content: Any

    @property
    def from_class(self) -> bool:
        """It comes from the DeviceClass, which an administrator writes."""
        return self.source == FROM_CLASS

    def concerns(self, share: Share) -> bool:
        """Whether it is for that share's request, or for the request that its subrequest is of."""
        return not self.requests or share.request in self.requests or share.main_request in self.requests


@dataclass(frozen=True)
class Allocation:
    """A claim as far as it is ours.

    Attributes:
        pods: names by UID of the pods that it is reserved for.
        allocated_at: RFC 3339; empty when the server does not say.
    """

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    shares: tuple[Share, ...]
    parameters: tuple[Parameters, ...]
    pods: Mapping[str, str]
    allocated_at: str = ""

    def __str__(self) -> str:
        return f"claim {self.namespace}/{self.name}"


def allocation(claim: Mapping[str, Any]) -> Allocation:
    """The claim's allocation; without shares when it has none of our devices.

    Raises:
        ConfigError: an amount in it is none.
    """
    metadata, status = claim["metadata"], claim.get("status") or {}
    allocated = status.get("allocation") or {}
    devices = allocated.get("devices") or {}
    return Allocation(
        uid=metadata["uid"],
        namespace=metadata.get("namespace", ""),
        name=metadata["name"],
        labels=metadata.get("labels") or {},
        shares=tuple(_share(raw) for raw in devices.get("results") or () if raw.get("driver") == kinds.DRIVER),
        parameters=tuple(_parameters(devices.get("config") or ())),
        pods=_pods(status.get("reservedFor") or ()),
        allocated_at=allocated.get("allocationTimestamp", ""),
    )


def _share(raw: Mapping[str, Any]) -> Share:
    memory = (raw.get("consumedCapacity") or {}).get(kinds.CAPACITY_HOST_MEMORY)
    return Share(
        request=raw["request"],
        pool=raw["pool"],
        device=raw["device"],
        share_id=raw.get("shareID") or "",
        host_memory=None if memory is None else bytes_of(memory, "consumedCapacity.hostMemory"),
    )


def _parameters(config: Sequence[Mapping[str, Any]]) -> list[Parameters]:
    ours = [entry for entry in config if (entry.get("opaque") or {}).get("driver") == kinds.DRIVER]
    return [
        Parameters(entry.get("source", ""), tuple(entry.get("requests") or ()), entry["opaque"].get("parameters"))
        for entry in ours
    ]


def _pods(reserved: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    return {
        each["uid"]: each["name"] for each in reserved if each.get("resource") == "pods" and not each.get("apiGroup")
    }
