"""Raw objects of a cluster with lanes, as the real one has them."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from timeslice_api.kinds import capacity_key, class_name, decode_group
from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import DRIVER, LABEL_GROUP, LABEL_JOB
from timeslice_orchestrator.kubernetes.claims import Claim, claim_of
from timeslice_orchestrator.kubernetes.lanes import slice_of
from timeslice_orchestrator.kubernetes.occupancy import Occupancy
from timeslice_orchestrator.kubernetes.pending import World
from timeslice_orchestrator.kubernetes.pods import Pod, pod_of

Object = dict[str, Any]
_numbers = itertools.count(1)


def group(name: str, *, jobs: Sequence[str] | None = None, status_jobs: Sequence[str] = (), **spec: Any) -> Object:
    if jobs is not None:
        spec["jobs"] = list(jobs)
    metadata = {"name": name, "uid": f"uid-{name}", "resourceVersion": "1", "generation": 1}
    return {
        "apiVersion": "timeslice.dev/v1alpha1",
        "kind": "TimesliceGroup",
        "metadata": metadata,
        "spec": spec,
        "status": {"jobs": list(status_jobs)},
    }


def lane(
    gpu: int,
    group_id: str,
    *,
    jobs: Iterable[str] = (),
    seats: int = 2,
    memory: str = "160Gi",
    default: str = "80Gi",
    taints: Sequence[str] = (),
) -> Object:
    device: Object = {
        "name": f"gpu-{gpu}-{group_id}",
        "allowMultipleAllocations": True,
        "attributes": {
            "uuid": {"string": f"GPU-{gpu}"},
            "group": {"string": group_id},
            "mode": {"string": "lanes"},
            "slot": {"int": -1},
        },
        "capacity": {
            "seats": {"value": str(seats), "requestPolicy": {"default": "1", "validValues": ["1"]}},
            "hostMemory": {
                "value": memory,
                "requestPolicy": {"default": default, "validRange": {"min": "1Mi", "step": "1Mi"}},
            },
            **{
                capacity_key(job): {"value": "1", "requestPolicy": {"default": "0", "validValues": ["0", "1"]}}
                for job in jobs
            },
        },
        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {"lane": {"value": "1"}}}],
    }
    if taints:
        device["taints"] = [{"key": key, "effect": "NoSchedule"} for key in taints]
    return device


def slot(gpu: int, number: int) -> Object:
    return {
        "name": f"gpu-{gpu}-slot-{number}",
        "attributes": {
            "uuid": {"string": f"GPU-{gpu}"},
            "group": {"string": ""},
            "mode": {"string": "slots"},
            "slot": {"int": number},
        },
        "capacity": {"hostMemory": {"value": "80Gi"}},
    }


def node_slice(node: str, *devices: Object, generation: int = 1) -> Object:
    return {
        "metadata": {"name": f"{node}-{next(_numbers)}", "uid": f"uid-slice-{next(_numbers)}"},
        "spec": {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }


def claim(
    name: str,
    group_id: str,
    *,
    job: str = "",
    count: int = 1,
    memory: str = "",
    on: Sequence[tuple[str, int]] = (),
    namespace: str = "team",
    pod: str = "",
    label_group: str = "",
    config: Mapping[str, Any] | None = None,
    consumed_job: str = "",
    slots: Sequence[str] = (),
) -> Object:
    """`on` are (node, gpu) that it has; `slots` names of devices of node-a instead."""
    asked = {capacity_key(job): "1"} if job else {}
    exactly: Object = {"deviceClassName": class_name(group_id), "allocationMode": "ExactCount", "count": count}
    exactly["capacity"] = {"requests": {**asked, **({"hostMemory": memory} if memory else {})}}
    labels = {key: value for key, value in ((LABEL_JOB, job), (LABEL_GROUP, label_group)) if value}
    spec: Object = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    opaque = [{"opaque": {"driver": DRIVER, "parameters": dict(config)}}] if config else []
    if opaque:
        spec["devices"]["config"] = opaque
    body: Object = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "resourceVersion": "1",
            "creationTimestamp": "2026-11-29T16:00:00Z",
            "labels": labels,
        },
        "spec": spec,
    }
    if pod:
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": f"uid-{pod}", "controller": True}
        body["metadata"]["ownerReferences"] = [owner]
    results = [
        {
            "request": "gpu",
            "driver": DRIVER,
            "pool": node,
            "device": f"gpu-{gpu}-{group_id}",
            "shareID": f"share-{name}-{gpu}",
            "consumedCapacity": {
                "seats": "1",
                "hostMemory": memory or "80Gi",
                capacity_key("nobody"): "0",
                **({capacity_key(consumed_job or job): "1"} if consumed_job or job else {}),
            },
        }
        for node, gpu in on
    ]
    results += [{"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": device} for device in slots]
    if results:
        sources = [{"source": "FromClaim", **one} for one in opaque]
        body["status"] = {
            "allocation": {"devices": {"results": results, "config": sources}},
            "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"}] if pod else [],
        }
    return body


def refused(body: Object, reason: str, message: str = "no") -> Object:
    """The claim with the node's refusal in its status."""
    results = body["status"]["allocation"]["devices"]["results"]
    condition = {"type": "Ready", "status": "False", "reason": reason, "message": message}
    devices = [
        {**{key: result[key] for key in ("driver", "pool", "device")}, "conditions": [condition]} for result in results
    ]
    return {**body, "status": {**body["status"], "devices": devices}}


def pod(
    name: str,
    *claims: str,
    namespace: str = "team",
    job: str = "",
    label_group: str = "",
    node: str = "",
    phase: str = "Pending",
    controller: str = "trainer",
) -> Object:
    metadata: Object = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid-{name}",
        "resourceVersion": "1",
        "labels": {key: value for key, value in ((LABEL_JOB, job), (LABEL_GROUP, label_group)) if value},
    }
    if controller:
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": controller, "uid": f"uid-{controller}"}
        metadata["ownerReferences"] = [{**owner, "controller": True}]
    tried = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    spec: Object = {"resourceClaims": [{"name": f"c{n}", "resourceClaimName": name} for n, name in enumerate(claims)]}
    if node:
        spec["nodeName"] = node
        tried = {"type": "PodScheduled", "status": "True"}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase, "conditions": [tried]}}


def small(raw: Object) -> Claim:
    found = claim_of(raw)
    assert found is not None
    return found


def small_pod(raw: Object) -> Pod:
    found = pod_of(raw)
    assert found is not None
    return found


def groups_of(raws: Iterable[Object]) -> dict[str, TimesliceGroup]:
    return {one.name: one for one in map(decode_group, raws)}


def occupancy(slices: Iterable[Object], claims: Iterable[Object], pods: Iterable[Object] = ()) -> Occupancy:
    found = Occupancy()
    for raw in slices:
        found.change_slice(None, slice_of(raw))
    for raw in claims:
        found.change_claim(None, small(raw))
    for raw in pods:
        found.change_pod(None, small_pod(raw))
    return found


def world(
    groups: Iterable[Object],
    slices: Iterable[Object] = (),
    claims: Iterable[Object] = (),
    *,
    pods: Iterable[Object] = (),
    selected: Mapping[str, Sequence[str]] | None = None,
) -> World:
    return World(groups_of(groups), occupancy(slices, claims, pods), selected or {})
