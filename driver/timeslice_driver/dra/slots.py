"""Slots: one exclusive device per GPU and seat, for clusters where lanes do not work. Pure.

The scheduler keeps nobody apart here but by exclusive devices; which group and job come on a GPU is checked in prepare.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timeslice_api.kinds import names as kinds

from timeslice_driver.dra import content
from timeslice_driver.dra.content import Content, quantity
from timeslice_driver.dra.device_names import DeviceName
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.offers import Offer


def slots(gpus: Sequence[Gpu], offers: Sequence[Offer], *, host_memory: int) -> Content:
    """The pool's content, see `lanes.lanes`.

    All GPUs' first slots come before all second ones: the scheduler takes the first that fits, so a claim of several
    GPUs gets several indeed while there are enough.
    """
    share = content.host_memory_share(host_memory, gpus)
    counts = {gpu.uuid: _slots_of(gpu, offers, share) for gpu in gpus}
    keys, left_out = content.fitting_jobs(dict.fromkeys(job for offer in offers for job in offer.jobs))
    devices = [
        _slot(gpu, slot, keys, share // counts[gpu.uuid])
        for slot in range(max(counts.values(), default=0))
        for gpu in gpus
        if slot < counts[gpu.uuid]
    ]
    return Content(tuple(devices), (), {"": left_out} if left_out else {})


def _slots_of(gpu: Gpu, offers: Sequence[Offer], share: int) -> int:
    """As many as the largest group has seats, but no more than have room for their snapshots."""
    seats = max((offer.seats for offer in offers), default=2)
    return max(1, min(seats, share // max(1, gpu.memory_bytes)))


def _slot(gpu: Gpu, slot: int, keys: Sequence[str], host_memory: int) -> dict[str, Any]:
    """With plain capacities, so that claims that ask for them fit where the scheduler compares."""
    device = {
        "name": str(DeviceName(gpu.number, slot=slot)),
        "attributes": content.attributes(gpu, mode=kinds.MODE_SLOTS, group="", slot=slot),
        "capacity": {
            kinds.CAPACITY_SEATS: {"value": "1"},
            kinds.CAPACITY_HOST_MEMORY: {"value": quantity(host_memory)},
            **{key: {"value": "1"} for key in keys},
        },
    }
    taints = content.taints(gpu, draining=False)
    return device | ({"taints": taints} if taints else {})
