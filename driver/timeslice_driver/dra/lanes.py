"""Lanes: one device per GPU and group, from which the scheduler itself keeps all rules of sharing. Pure.

A lane may be allocated to many claims. Taking it the first time uses up its GPU's one-unit counter `lane`, so no other
group gets that GPU; every further claim only consumes capacity: a seat, host memory for its snapshot, and the one unit
of its job, so no job is twice on one GPU. Needs Kubernetes 1.36.3 (see mode.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from timeslice_api.kinds import names as kinds

from timeslice_driver.dra import content
from timeslice_driver.dra.content import MIB, Content, quantity
from timeslice_driver.dra.device_names import DeviceName, counter_set
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.offers import Offer


def lanes(gpus: Sequence[Gpu], offers: Sequence[Offer], *, host_memory: int) -> Content:
    """The pool's content.

    Args:
        gpus: by number; partner jobs meet because all claims try them in this order.
        offers: the node's groups.
        host_memory: what the node has for snapshots in all (bytes).
    """
    jobs = {offer.group: content.fitting_jobs(offer.jobs) for offer in offers}
    shares = {offer.group: content.host_memory_share(host_memory, gpus, wanted=offer.host_memory) for offer in offers}
    devices = [
        _lane(gpu, offer, keys=jobs[offer.group][0], share=shares[offer.group])
        for gpu in gpus
        for offer in offers
        if offer.covers(gpu.uuid)
    ]
    left_out = {group: unfit for group, (_, unfit) in jobs.items() if unfit}
    return Content(tuple(devices), tuple(_counters(gpu) for gpu in gpus), left_out)


def _lane(gpu: Gpu, offer: Offer, *, keys: Sequence[str], share: int) -> dict[str, Any]:
    device = {
        "name": str(DeviceName(gpu.number, group=offer.group)),
        "allowMultipleAllocations": True,
        "attributes": content.attributes(gpu, mode=kinds.MODE_LANES, group=offer.group, slot=-1),
        "capacity": _capacity(gpu, offer, keys=keys, share=share),
        "consumesCounters": [_counters(gpu, of="counterSet")],
    }
    taints = content.taints(gpu, draining=offer.draining)
    return device | ({"taints": taints} if taints else {})


def _capacity(gpu: Gpu, offer: Offer, *, keys: Sequence[str], share: int) -> dict[str, Any]:
    """Each with a policy: a capacity without one is consumed whole by the first claim."""
    default = quantity(content.default_host_memory(gpu, share))
    memory_range = {"min": quantity(MIB), "step": quantity(MIB)}
    return {
        kinds.CAPACITY_SEATS: _policy(str(offer.seats), default="1", validValues=["1"]),
        kinds.CAPACITY_HOST_MEMORY: _policy(quantity(share), default=default, validRange=memory_range),
        **{key: _policy("1", default="0", validValues=["0", "1"]) for key in keys},
    }


def _policy(value: str, **policy: Any) -> dict[str, Any]:
    return {"value": value, "requestPolicy": policy}


def _counters(gpu: Gpu, *, of: str = "name") -> dict[str, Any]:
    """The GPU's counter set, or what a lane consumes of it: the API gives the name another key in each."""
    return {of: counter_set(gpu.number), "counters": {kinds.COUNTER_LANE: {"value": "1"}}}
