"""Lanes on the real API server and the real scheduler: who gets which GPU, who waits, who gets in when someone leaves.

Each test has a node of its own, which has slices but no kubelet: its pods are placed and never start.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from dra_kubeletplugin import Claim, Pool
from dra_kubeletplugin.apiserver import CLAIMS, DEVICE_CLASSES, NODES, PODS, SLICES, ApiServer, NotFoundError, Resource
from dra_samples import GIB, gpu
from timeslice_api.kinds import capacity_key
from timeslice_api.kinds import names as kinds
from timeslice_driver.dra import refusals
from timeslice_driver.dra.content import Content
from timeslice_driver.dra.lanes import lanes
from timeslice_driver.dra.offers import Offer
from timeslice_driver.dra.reports import Reports
from timeslice_driver.dra.slots import slots

pytestmark = pytest.mark.timeout(120)

JOBS = ("job-a", "job-b", "job-c")
NAMESPACE = "default"
_PLACED_S = 20.0


class Lanes:
    """A node with two GPUs and the groups rl-a and rl-b, and claims on it."""

    def __init__(self, api: ApiServer) -> None:
        self.api = api
        self.suffix = uuid4().hex[:6]
        self.node = f"lanes-{self.suffix}"
        self._made: list[tuple[Resource, str]] = []

    def group(self, name: str) -> str:
        return f"{name}-{self.suffix}"

    def content(self, *, seats: int = 2, draining: str = "") -> Content:
        offers = [
            Offer(self.group(name), seats=seats, jobs=JOBS, draining=name == draining) for name in ("rl-a", "rl-b")
        ]
        gpus = [gpu(number, uuid=f"GPU-{number}-{self.suffix}") for number in (0, 1)]
        return lanes(gpus, offers, host_memory=320 * GIB)

    async def set_up(self) -> None:
        labels = {"kubernetes.io/hostname": self.node}
        await self.create(NODES, {"metadata": {"name": self.node, "labels": labels}})
        room = {"cpu": "8", "memory": "64Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "Test", "message": "", "lastHeartbeatTime": None}
        status = {"capacity": room, "allocatable": room, "conditions": [ready]}
        await self.api.patch(NODES, self.node, {"status": status}, subresource="status")
        for name in ("rl-a", "rl-b"):
            expression = (
                f"device.driver == '{kinds.DRIVER}' && "
                f"device.attributes['{kinds.DRIVER}'].group == '{self.group(name)}'"
            )
            parameters = {"kind": kinds.KIND_CONFIG, "apiVersion": kinds.API_VERSION, "group": self.group(name)}
            config = [{"opaque": {"driver": kinds.DRIVER, "parameters": parameters}}]
            spec = {"selectors": [{"cel": {"expression": expression}}], "config": config}
            await self.create(DEVICE_CLASSES, {"metadata": {"name": self.group(name)}, "spec": spec})

    async def create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        kind = {NODES: "Node", DEVICE_CLASSES: "DeviceClass", SLICES: "ResourceSlice", CLAIMS: "ResourceClaim"}
        body = {"apiVersion": resource.api_version, "kind": kind.get(resource, "Pod"), **body}
        made = await self.api.create(resource, body, namespace=NAMESPACE if resource.namespaced else "")
        self._made.append((resource, made["metadata"]["name"]))
        return made

    async def publish(self, content: Content, *, generation: int = 1) -> list[dict[str, Any]]:
        """What the API server has of it, after older slices are gone."""
        old, _ = await self.api.list(SLICES, fields=f"spec.nodeName={self.node}")
        for each in old:
            await self.api.delete(SLICES, each["metadata"]["name"])
        pool = Pool.of(content.devices, content.counter_sets)
        place = {"name": self.node, "generation": generation, "resourceSliceCount": len(pool.slices)}
        common = {"driver": kinds.DRIVER, "nodeName": self.node, "pool": place}
        parts = [{"devices": list(part.devices)} if part.devices else {"sharedCounters": list(part.shared_counters)}
                 for part in pool.slices]  # fmt: skip
        names = [{"name": f"{index}-{self.node}-{generation}"} for index in range(len(parts))]
        return [
            await self.create(SLICES, {"metadata": name, "spec": {**common, **part}})
            for name, part in zip(names, parts, strict=True)
        ]

    async def claim(self, name: str, group: str, *, job: str, count: int = 1, memory: str = "") -> None:
        """A claim with the pod that wants it, as the admission policy would have filled it in."""
        name = f"{name}-{self.suffix}"
        requests = {capacity_key(job): "1"} | ({kinds.CAPACITY_HOST_MEMORY: memory} if memory else {})
        exactly = {"deviceClassName": self.group(group), "count": count, "capacity": {"requests": requests}}
        apart = {"requests": ["gpu"], "distinctAttribute": f"{kinds.DRIVER}/{kinds.ATTRIBUTE_UUID}"}
        devices = {"requests": [{"name": "gpu", "exactly": exactly}], "constraints": [apart]}
        await self.create(CLAIMS, {"metadata": {"name": name}, "spec": {"devices": devices}})
        container = {"name": "none", "image": "none.invalid/none", "resources": {"claims": [{"name": "gpu"}]}}
        spec = {
            "nodeSelector": {"kubernetes.io/hostname": self.node},
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
        }
        await self.create(PODS, {"metadata": {"name": name}, "spec": spec})

    async def gets(self, name: str) -> list[str]:
        """The devices that the scheduler gives it, as `gpu-<number>-<group>`."""
        name = f"{name}-{self.suffix}"
        claim = await self._until(CLAIMS, name, lambda raw: (raw.get("status") or {}).get("allocation"))
        results = claim["status"]["allocation"]["devices"]["results"]
        return [result["device"].removesuffix(f"-{self.suffix}") for result in results]

    async def waits(self, name: str) -> bool:
        """The scheduler has looked at it, and has nothing for it."""
        name = f"{name}-{self.suffix}"

        def unschedulable(raw: dict[str, Any]) -> bool:
            conditions = (raw.get("status") or {}).get("conditions") or ()
            return any(each.get("reason") == "Unschedulable" for each in conditions)

        await self._until(PODS, name, unschedulable)
        claim = await self.api.get(CLAIMS, name, namespace=NAMESPACE)
        return not (claim.get("status") or {}).get("allocation")

    async def leaves(self, name: str) -> None:
        for resource in (PODS, CLAIMS):
            await self.api.delete(resource, f"{name}-{self.suffix}", namespace=NAMESPACE)

    async def tear_down(self) -> None:
        for resource, name in reversed(self._made):
            try:
                await self.api.delete(resource, name, namespace=NAMESPACE if resource.namespaced else "")
            except NotFoundError:
                continue

    async def _until(self, resource: Resource, name: str, holds: Callable[[dict[str, Any]], Any]) -> dict[str, Any]:
        async with asyncio.timeout(_PLACED_S):
            while not holds(raw := await self.api.get(resource, name, namespace=NAMESPACE)):
                await asyncio.sleep(0.1)
        return raw


@pytest_asyncio.fixture
async def node() -> AsyncIterator[Lanes]:
    async with await ApiServer.connect(kubeconfig=os.environ["KUBECONFIG"]) as api:
        made = Lanes(api)
        try:
            await made.set_up()
            yield made
        finally:
            await made.tear_down()


@pytest.mark.parametrize("mode", ["lanes", "slots"])
async def test_what_is_published_is_read_back_unchanged(node: Lanes, mode: str) -> None:
    content = node.content(seats=16)
    if mode == "slots":
        gpus = [gpu(number, uuid=f"GPU-{number}", fault="lost" if number else "") for number in (0, 1)]
        content = slots(gpus, [Offer("rl-a", seats=4, jobs=JOBS)], host_memory=640 * GIB)
    slices = await node.publish(content)
    devices = [device for each in slices for device in each["spec"].get("devices") or ()]
    for device in devices:
        for taint in device.get("taints") or ():
            assert taint.pop("timeAdded"), "the server adds when it came"
    assert devices == list(content.devices)
    counters = [counter for each in slices for counter in each["spec"].get("sharedCounters") or ()]
    assert counters == list(content.counter_sets)


async def test_the_most_that_a_device_may_have_is_taken(node: Lanes) -> None:
    crowd = Offer("rl-a", seats=16, jobs=tuple(f"job-{number}" for number in range(40)))
    content = lanes([gpu(number) for number in range(8)], [crowd], host_memory=8 * GIB)
    slices = await node.publish(content)
    assert [len(each["spec"].get("devices") or ()) for each in slices] == [0, 8]
    assert all(len(device["attributes"]) + len(device["capacity"]) == 32 for device in content.devices)


async def test_a_node_without_memory_for_snapshots_still_has_lanes_that_the_server_takes(node: Lanes) -> None:
    content = lanes([gpu(0)], [Offer("rl-a", jobs=JOBS)], host_memory=0)
    _, slice_ = await node.publish(content)
    assert slice_["spec"]["devices"] == list(content.devices)


async def test_jobs_of_a_group_share_a_gpu_the_same_job_gets_another_and_another_group_waits(node: Lanes) -> None:
    await node.publish(node.content())
    await node.claim("a1", "rl-a", job="job-a")
    assert await node.gets("a1") == ["gpu-0-rl-a"]
    await node.claim("b1", "rl-a", job="job-b")
    assert await node.gets("b1") == ["gpu-0-rl-a"]
    await node.claim("a2", "rl-a", job="job-a")
    assert await node.gets("a2") == ["gpu-1-rl-a"], "never the same job twice on a GPU"
    await node.claim("x1", "rl-b", job="job-a")
    assert await node.waits("x1"), "both GPUs are in the other group's lane"
    await node.leaves("a2")
    assert await node.gets("x1") == ["gpu-1-rl-b"], "by itself"


async def test_claims_of_two_gpus_get_two_and_a_third_job_waits(node: Lanes) -> None:
    await node.publish(node.content())
    await node.claim("m1", "rl-a", job="job-a", count=2)
    assert await node.gets("m1") == ["gpu-0-rl-a", "gpu-1-rl-a"]
    await node.claim("m2", "rl-a", job="job-b", count=2)
    assert await node.gets("m2") == ["gpu-0-rl-a", "gpu-1-rl-a"]
    await node.claim("m3", "rl-a", job="job-b")
    assert await node.waits("m3")


async def test_snapshots_always_fit_into_host_memory(node: Lanes) -> None:
    await node.publish(node.content(seats=3))
    await node.claim("h1", "rl-a", job="job-a", memory="100Gi")
    assert await node.gets("h1") == ["gpu-0-rl-a"]
    await node.claim("h2", "rl-a", job="job-b")
    assert await node.gets("h2") == ["gpu-1-rl-a"], "100 and the default of 80 are more than 160"
    await node.claim("h3", "rl-a", job="job-c", memory="60Gi")
    assert await node.gets("h3") == ["gpu-0-rl-a"], "it fits exactly"


async def test_no_more_jobs_than_seats(node: Lanes) -> None:
    await node.publish(node.content(seats=1))
    for name, job, expected in (("s1", "job-a", "gpu-0-rl-a"), ("s2", "job-b", "gpu-1-rl-a")):
        await node.claim(name, "rl-a", job=job)
        assert await node.gets(name) == [expected]
    await node.claim("s3", "rl-a", job="job-c")
    assert await node.waits("s3")


async def test_a_draining_group_keeps_what_it_has_and_takes_nothing_new(node: Lanes) -> None:
    await node.publish(node.content())
    await node.claim("d1", "rl-a", job="job-a")
    assert await node.gets("d1") == ["gpu-0-rl-a"]
    await node.publish(node.content(draining="rl-a"), generation=2)
    await node.claim("d2", "rl-a", job="job-b")
    assert await node.waits("d2")
    await node.claim("d3", "rl-b", job="job-a", count=1)
    assert await node.gets("d3") == ["gpu-1-rl-b"], "the lane that is closed still holds gpu-0"


async def test_what_prepare_has_to_say_gets_into_the_status_of_a_claim_that_its_class_configures(node: Lanes) -> None:
    await node.publish(node.content())
    await node.claim("r1", "rl-a", job="job-a")
    await node.gets("r1")
    claim = Claim.of(await node.api.get(CLAIMS, f"r1-{node.suffix}", namespace=NAMESPACE), driver=kinds.DRIVER)
    reports = Reports(node.api, node=node.node)
    task = asyncio.create_task(reports.run())
    reports.refused(claim, refusals.job_unknown())
    reports.prepared(claim)
    await reports.flush()
    task.cancel()
    raw = await node.api.get(CLAIMS, claim.ref.name, namespace=NAMESPACE)
    (device,) = raw["status"]["devices"]
    assert [(each["type"], each["status"]) for each in device["conditions"]] == [("Ready", "True")]
