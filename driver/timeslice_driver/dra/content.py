"""What both ways to publish share: a device's attributes, capacities and taints, in the API's own form. Pure.

Schema and limits: k8s.io/api/resource/v1, types.go: 32 attributes and capacities per device, strings of 64 characters.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from timeslice_api.kinds import capacity_key
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra.gpus import Gpu

MIB: Final = 1 << 20
_MAX_STRING: Final = 64
_MAX_ENTRIES: Final = 32
_OTHER_ENTRIES: Final = 13 + 2  # attributes; and seats and host memory among the capacities
MOST_JOBS: Final = _MAX_ENTRIES - _OTHER_ENTRIES  # that a device has room for
_LEAST_HOST_MEMORY: Final = 2 * MIB  # the API wants min + step of a range to be within the value


@dataclass(frozen=True)
class Content:
    """All of a node's pool.

    Attributes:
        devices: raw, in the order in which the scheduler is to try them (it takes the first that fits).
        counter_sets: raw.
        left_out: jobs, by group, for which a device has no room for a capacity: their claims stay pending there.
    """

    devices: tuple[dict[str, Any], ...] = ()
    counter_sets: tuple[dict[str, Any], ...] = ()
    left_out: Mapping[str, tuple[str, ...]] | None = None


def attributes(gpu: Gpu, *, mode: str, group: str, slot: int) -> dict[str, Any]:
    """All of them, whatever is unknown: CEL fails on an attribute that is missing."""
    return {
        kinds.ATTRIBUTE_UUID: {"string": gpu.uuid},
        "index": {"int": gpu.number},
        kinds.ATTRIBUTE_GROUP: {"string": group},
        kinds.ATTRIBUTE_SLOT: {"int": slot},
        kinds.ATTRIBUTE_MODE: {"string": mode},
        "productName": {"string": gpu.product_name[:_MAX_STRING]},
        "architecture": {"string": gpu.architecture},
        "computeCapability": {"version": gpu.compute_capability},
        "driverVersion": {"version": gpu.driver_version},
        "memoryBytes": {"int": gpu.memory_bytes},
        "resource.kubernetes.io/pciBusID": {"string": gpu.bus_id},
        "resource.kubernetes.io/pcieRoot": {"string": gpu.pcie_root},
        "resource.kubernetes.io/numaNode": {"int": gpu.numa_node},
    }


def taints(gpu: Gpu, *, draining: bool) -> list[dict[str, str]]:
    """Why no new claim may have a device: one taint per reason; none when there is no reason."""
    reasons = ((kinds.TAINT_UNHEALTHY, bool(gpu.fault)), (kinds.TAINT_DRAINING, draining))
    return [{"key": key, "effect": "NoSchedule"} for key, holds in reasons if holds]


def host_memory_share(total: int, gpus: Sequence[Gpu], *, wanted: int | None = None) -> int:
    """Bytes of snapshots per GPU, in whole MiB: the node's total in equal parts, or less where a group says so."""
    share = total // max(1, len(gpus))
    share = share if wanted is None else min(share, wanted)
    return max(_LEAST_HOST_MEMORY, share // MIB * MIB)


def default_host_memory(gpu: Gpu, share: int) -> int:
    """What a claim that says nothing gets: room for all of the GPU's memory, as far as there is any."""
    return min(share, max(MIB, -(-gpu.memory_bytes // MIB) * MIB))


def fitting_jobs(jobs: Iterable[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Capacity names for as many jobs as a device has room for, the first first; and the jobs that found none."""
    keys: dict[str, None] = {}
    left_out = []
    for job in jobs:
        key = capacity_key(job)
        if key in keys or len(keys) < MOST_JOBS:
            keys[key] = None
        else:
            left_out.append(job)
    return tuple(keys), tuple(left_out)


def quantity(size: int) -> str:
    """Bytes in Kubernetes' canonical form, so that what is read back is what was written."""
    for power, unit in ((40, "Ti"), (30, "Gi"), (20, "Mi"), (10, "Ki")):
        if size and size % (1 << power) == 0:
            return f"{size >> power}{unit}"
    return str(size)
