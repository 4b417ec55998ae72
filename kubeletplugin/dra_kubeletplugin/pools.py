"""What a node offers: pools of devices, and how they are cut into ResourceSlices.

Devices and counter sets are raw objects as in `spec.devices` and `spec.sharedCounters` of a ResourceSlice of
resource.k8s.io/v1. Limits: k8s.io/api/resource/v1, types.go (ResourceSliceMaxDevices and those that follow).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dra_kubeletplugin.apiserver import Object

MOST_DEVICES = 128
MOST_ADVANCED_DEVICES = 64
MOST_COUNTER_SETS = 8


@dataclass(frozen=True)
class Slice:
    """A part of a pool, published as one object. Either devices or counter sets: since 1.35 none may have both.

    The order counts: the scheduler takes the first device that fits, in the order of slices and then of devices.
    """

    devices: tuple[Object, ...] = ()
    shared_counters: tuple[Object, ...] = ()


@dataclass(frozen=True)
class Pool:
    """All slices of a pool; the scheduler uses it once all of them are there.

    A pool without devices is one empty slice, so that it can be told from one that is not published yet.
    """

    slices: tuple[Slice, ...] = (Slice(),)

    @classmethod
    def of(cls, devices: Sequence[Object], shared_counters: Sequence[Object] = ()) -> Pool:
        """Cuts devices and counter sets into as few slices as the limits allow, in their order."""
        most = MOST_ADVANCED_DEVICES if any(map(_advanced, devices)) else MOST_DEVICES
        counters = [Slice(shared_counters=part) for part in _parts(shared_counters, MOST_COUNTER_SETS)]
        return cls((*counters, *(Slice(devices=part) for part in _parts(devices, most))) or (Slice(),))


def _advanced(device: Object) -> bool:
    """Whether a slice that has it may only be half as long."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    return any(kind.endswith("s") for value in (device.get("attributes") or {}).values() for kind in value)


def _parts(items: Sequence[Object], most: int) -> list[tuple[Object, ...]]:
    return [tuple(items[start : start + most]) for start in range(0, len(items), most)]
