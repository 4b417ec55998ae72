"""Claims that are allocated by hand, for pods that never start: so the kubelet leaves them to the bench."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dra_kubeletplugin.apiserver import CLAIMS, DEVICE_CLASSES, PODS, SLICES, Object

from timeslice_bench.cluster import DRIVER, NODE, Bench, in_bursts, lanes, remove

SEATS = 16
JOBS = [f"job-{number}" for number in range(SEATS)]


@dataclass(frozen=True)
class Allocated:
    """A claim with a GPU."""

    namespace: str
    name: str
    uid: str


@asynccontextmanager
async def allocated_claims(bench: Bench, group: str, count: int) -> AsyncIterator[list[Allocated]]:
    """So many claims of the group, which has 16 seats: each job has each GPU once. Gone afterwards."""
    slices, _ = await bench.api.list(SLICES, fields=f"spec.driver={DRIVER}")
    devices = lanes(slices, group)
    wanted = list(itertools.islice(itertools.product(JOBS, devices), count))
    batch = uuid.uuid4().hex[:6]
    names = [f"claim-{batch}-{number}" for number in range(len(wanted))]
    config = (await bench.api.get(DEVICE_CLASSES, f"{group}.timeslice.dev"))["spec"].get("config", [])
    made: dict[str, Allocated] = {}

    async def make(name: str) -> None:
        job, device = wanted[names.index(name)]
        made[name] = await _make(bench, name, job, allocation(f"job_{job.replace('-', '_')}", device, config))

    try:
        await in_bursts(make, names)
        yield [made[name] for name in names]
    finally:
        await remove(bench.api, PODS, names, namespace=bench.namespace)
        await remove(bench.api, CLAIMS, names, namespace=bench.namespace)


def allocation(capacity: str, device: str, config: Sequence[Object]) -> Object:
    """As the scheduler writes it."""
    result = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": NODE,
        "device": device,
        "shareID": str(uuid.uuid4()),
        "consumedCapacity": {"seats": "1", "hostMemory": "1Mi", capacity: "1"},
    }
    place = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
    return {
        "devices": {"results": [result], "config": [{"source": "FromClass", **each} for each in config]},
        "nodeSelector": {"nodeSelectorTerms": [place]},
    }


async def _make(bench: Bench, name: str, job: str, allocated: Object) -> Allocated:
    """A pod that waits behind a gate, and its claim, which is the pod's own as if it came from a template."""
    group = allocated["devices"]["results"][0]["device"].split("-", 2)[2]
    exactly = {"deviceClassName": f"{group}.timeslice.dev", "capacity": {"requests": {"hostMemory": "1Mi"}}}
    container = {"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}
    spec = {
        "schedulingGates": [{"name": "timeslice.dev/bench"}],
        "containers": [container],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    pod = await bench.api.create(PODS, {"metadata": {"name": name, "namespace": bench.namespace}, "spec": spec})
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": pod["metadata"]["uid"], "controller": True}
    labels = {"timeslice.dev/job": job}
    claim = await bench.api.create(
        CLAIMS,
        {
            "metadata": {"name": name, "namespace": bench.namespace, "labels": labels, "ownerReferences": [owner]},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
        },
    )
    user = {"resource": "pods", "name": name, "uid": pod["metadata"]["uid"]}
    status = {"allocation": allocated, "reservedFor": [user]}
    await bench.api.replace(CLAIMS, claim | {"status": status}, subresource="status")
    return Allocated(bench.namespace, name, claim["metadata"]["uid"])
