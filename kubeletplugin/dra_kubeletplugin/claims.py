"""Claims as a driver gets them: who is meant, what is allocated of the driver's devices, with which configuration.

Source: k8s.io/api/resource/v1, types.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from dra_kubeletplugin.apiserver import Object

Source: TypeAlias = Literal["FromClass", "FromClaim"]


def base_request(request: str) -> str:
    """The name of a request without that of the sub-request which was chosen of it (`gpu` of `gpu/large`)."""
    return request.partition("/")[0]


@dataclass(frozen=True)
class ClaimRef:
    """A ResourceClaim, as kubelet names it. Only the UID tells it from another one of the same name."""

    namespace: str
    name: str
    uid: str

    @property
    def about(self) -> dict[str, str]:
        """Fields of a line of the log about it (`extra`)."""
        return {"claim_uid": self.uid}

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name} ({self.uid})"


@dataclass(frozen=True)
class PodRef:
    """A pod that a claim is reserved for."""

    name: str
    uid: str


@dataclass(frozen=True)
class AllocatedDevice:
    """One of the driver's devices, as the scheduler allocated it.

    Attributes:
        request: of the claim; `request/sub-request` where one of several was chosen.
        share_id: tells the shares of a device apart that allows several allocations; else empty.
        consumed_capacity: quantities by capacity, of such a share.
        admin_access: it is for monitoring and does not count as use.
        raw: the whole result.
    """

    request: str
    pool: str
    device: str
    share_id: str = ""
    consumed_capacity: Mapping[str, str] = field(default_factory=dict)
    admin_access: bool = False
    raw: Object = field(default_factory=dict, repr=False)

    @property
    def base_request(self) -> str:
        """The request's name without the sub-request's."""
        return base_request(self.request)


@dataclass(frozen=True)
class OpaqueConfig:
    """Configuration for this driver. `requests` is empty when it is for all; `parameters` are as they were written."""

    source: Source
    requests: tuple[str, ...]
    parameters: Object

    def concerns(self, request: str) -> bool:
        """Whether it is for that request: for all, for this very one, or for the one that its sub-request is of."""
        return not self.requests or request in self.requests or base_request(request) in self.requests


@dataclass(frozen=True)
class Claim:
    """A claim that is allocated to this node, as the API server had it a moment ago.

    Attributes:
        driver: whose devices `results` and `configs` are about.
        raw: the whole object.
        pod_objects: with `Plugin(pods=True)`, the pods that it is reserved for, as far as they are there and may be
            read.
    """

    ref: ClaimRef
    driver: str
    raw: Object = field(repr=False)
    pod_objects: tuple[Object, ...] = field(default=(), repr=False)

    @classmethod
    def of(cls, raw: Object, *, driver: str) -> Claim:
        """From the object of the API server."""
        metadata = raw["metadata"]
        return cls(ClaimRef(metadata.get("namespace", ""), metadata["name"], metadata["uid"]), driver, raw)

    @property
    def allocated(self) -> bool:
        """Whether the scheduler has allocated it; other drivers' devices count too."""
        return bool((self.raw.get("status") or {}).get("allocation"))

    @property
    def results(self) -> tuple[AllocatedDevice, ...]:
        """This driver's devices, in the scheduler's order. A claim may have devices of several drivers."""
        found = self._allocated_devices().get("results") or ()
        return tuple(_result(raw) for raw in found if raw.get("driver") == self.driver)

    @property
    def pods(self) -> tuple[PodRef, ...]:
        """The pods that it is reserved for."""
        reserved = (self.raw.get("status") or {}).get("reservedFor") or ()
        return tuple(
            PodRef(each["name"], each["uid"])
            for each in reserved
            if each.get("resource") == "pods" and not each.get("apiGroup")
        )

    @property
    def labels(self) -> Mapping[str, str]:
        """Of the claim, where a template's have been copied to."""
        return self.raw["metadata"].get("labels") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        """Of the claim."""
        return self.raw["metadata"].get("annotations") or {}

    def configs(self, request: str = "") -> tuple[OpaqueConfig, ...]:
        """This driver's configuration, with a request only what concerns it, least important first.

        The class's entries come before the claim's, each in their order, so the last one that fits wins. An entry is
        taken whole; entries are not merged.
        """
        found = self._allocated_devices().get("config") or ()
        ours = [_config(raw) for raw in found if (raw.get("opaque") or {}).get("driver") == self.driver]
        ordered = sorted(ours, key=lambda config: config.source != "FromClass")
        return tuple(config for config in ordered if not request or config.concerns(request))

    def _allocated_devices(self) -> Object:
        status = self.raw.get("status") or {}
        devices: Object = (status.get("allocation") or {}).get("devices") or {}
        return devices


def _result(raw: Object) -> AllocatedDevice:
    return AllocatedDevice(
        request=raw["request"],
        pool=raw["pool"],
        device=raw["device"],
        share_id=raw.get("shareID") or "",
        consumed_capacity=raw.get("consumedCapacity") or {},
        admin_access=bool(raw.get("adminAccess")),
        raw=raw,
    )


def _config(raw: Object) -> OpaqueConfig:
    source: Source = "FromClass" if raw.get("source") == "FromClass" else "FromClaim"
    return OpaqueConfig(source, tuple(raw.get("requests") or ()), raw["opaque"].get("parameters"))
