"""Groups, GPUs and claims as tests of the plugin need them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from timeslice_api.kinds import TimesliceGroup, decode_group
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.records import ClaimRecord, HeldDevice

GIB = 1 << 30
NODE = "node-a"
DRIVER = "gpu.timeslice.dev"


def gpu(number: int, *, memory: int = 80 * GIB, fault: str = "", uuid: str = "") -> Gpu:
    return Gpu(
        number=number,
        uuid=uuid or f"GPU-{number}",
        minor=number,
        product_name="H100",
        memory_bytes=memory,
        architecture="Hopper",
        compute_capability="9.0.0",
        driver_version="570.86.0",
        bus_id=f"0000:{number + 1:02x}:00.0",
        pcie_root="pci0000:00",
        numa_node=0,
        fault=fault,
    )


def group(name: str = "rl-a", *, jobs: Sequence[str] | None = None, status_jobs: Sequence[str] = (), deleted: str = "",
          **spec: Any) -> TimesliceGroup:  # fmt: skip
    metadata = {"name": name, "uid": f"uid-{name}"} | ({"deletionTimestamp": deleted} if deleted else {})
    spec = {"jobs": list(jobs), **spec} if jobs is not None else spec
    return decode_group({"metadata": metadata, "spec": spec, "status": {"jobs": list(status_jobs)}})


def record(
    uid: str, *uuids: str, job: str = "job-a", group: str = "rl-a", memory: int = 0, state: Any = "completed",
    pods: Mapping[str, str] | None = None,
) -> ClaimRecord:  # fmt: skip
    devices = tuple(
        HeldDevice("gpu", NODE, f"gpu-{uuid.removeprefix('GPU-')}-{group}", uuid, f"share-{uid}-{uuid}", memory)
        for uuid in uuids
    )
    return ClaimRecord(uid, "rl", f"claim-{uid}", state, job, group, devices, pods or {})


def raw_claim(
    uid: str, *devices: str, labels: Mapping[str, str] | None = None, config: Sequence[Mapping[str, Any]] = (),
    memory: str = "1Gi", pods: Sequence[str] = ("pod-1",), allocated_at: str = "2026-01-01T00:00:00Z",
    shared: bool = True, name: str = "",
) -> dict[str, Any]:  # fmt: skip
    """A claim as the API server has it once it is allocated and reserved."""
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
        | ({"shareID": f"{uid}-{device}", "consumedCapacity": {"seats": "1", "hostMemory": memory}} if shared else {})
        for device in devices
    ]
    node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"uid": uid, "name": name or f"claim-{uid}", "namespace": "rl", "labels": dict(labels or {})},
        "spec": {"devices": {"requests": [{"name": "gpu"}]}},
        "status": {
            "allocation": {
                "devices": {"results": results, "config": list(config)},
                "nodeSelector": {"nodeSelectorTerms": [node]},
                "allocationTimestamp": allocated_at,
            },
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"{pod}-uid"} for pod in pods],
        },
    }


def opaque(
    source: str = "FromClass", *, requests: Sequence[str] = (), driver: str = DRIVER, **fields: Any
) -> dict[str, Any]:
    """An entry of opaque configuration in an allocation."""
    parameters = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig", **fields}
    return {"source": source, "requests": list(requests), "opaque": {"driver": driver, "parameters": parameters}}
