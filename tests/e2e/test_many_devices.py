"""What a node with very many GPUs publishes, against the real API server and scheduler.

The node is a Node object alone, and the plugin runs here, with folders of its own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from dra_kubeletplugin import Claim, ClaimRef, Plugin, Pool, PreparedDevice, PrepareError
from dra_kubeletplugin.apiserver import NODES, ApiServer
from kube_cluster import Cluster
from reading import SLICES, Object, objects
from team import Team
from timeslice_driver.dra.gpus import Gpu
from timeslice_driver.dra.lanes import lanes
from timeslice_driver.dra.offers import Offer
from waits import START_S, until

pytestmark = pytest.mark.timeout(240)

GIB = 1 << 30
MANY = 129
DRIVER = "many.timeslice.dev"  # not the product's own, whose groups and policies this is not about
OFFERS = (Offer("rl-a", jobs=("job-a", "job-b")), Offer("rl-b", jobs=("job-a",)))
PUBLISHED_S = 60.0


@pytest.fixture
def team(cluster: Cluster) -> Iterator[Team]:
    """Its own, since nothing has to be installed here."""
    made = Team(cluster, f"e2e-{uuid4().hex[:6]}")
    made.create()
    yield made
    made.remove()


class Nobody:
    """A driver that no kubelet calls."""

    async def prepare(self, claims: Sequence[Claim]) -> Mapping[str, Sequence[PreparedDevice] | PrepareError]:
        """Refuses."""
        return {claim.ref.uid: PrepareError("there is no such node") for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareError | None]:
        """Has nothing to do."""
        return {claim.uid: None for claim in claims}

    async def failed(self, error: Exception) -> None:
        """``published`` raises what matters."""


@asynccontextmanager
async def node(cluster: Cluster, folder: Path) -> AsyncIterator[tuple[str, Plugin]]:
    """A Node object, ready and empty, and a plugin that publishes for it. Both are gone afterwards."""
    name = f"many-{uuid4().hex[:6]}"
    async with await ApiServer.connect(kubeconfig=str(cluster.kubeconfig)) as api:
        await api.create(NODES, {"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}})
        ready = {"type": "Ready", "status": "True", "reason": "Said", "message": "by a test"}
        room = {"cpu": "64", "memory": "1Ti", "pods": "100"}
        status = {"status": {"conditions": [ready], "allocatable": room, "capacity": room}}
        await api.patch(NODES, name, status, subresource="status")
        (folder / "registry").mkdir()  # the kubelet's
        places = {"registry_dir": folder / "registry", "data_dir": folder / "data"}
        try:
            async with Plugin(DRIVER, Nobody(), name, api, **places) as plugin:  # type: ignore[arg-type]
                yield name, plugin
        finally:
            await api.delete(NODES, name)


async def publish(plugin: Plugin, name: str, pool: Pool) -> None:
    plugin.publish({name: pool})
    async with asyncio.timeout(PUBLISHED_S):
        await plugin.published()


def slices(cluster: Cluster, name: str) -> list[Object]:
    """Of the node's pool, in the order in which the scheduler goes through them."""
    found = objects(cluster, SLICES, fields=f"spec.nodeName={name}")
    return sorted(found, key=lambda each: str(each["metadata"]["name"]))


def check_complete(found: list[Object]) -> None:
    """The scheduler uses a pool only if all its slices are there, of one generation."""
    assert {each["spec"]["pool"]["resourceSliceCount"] for each in found} == {len(found)}
    assert len({each["spec"]["pool"]["generation"] for each in found}) == 1


def lengths(found: list[Object], of: str) -> list[int]:
    return [len(each["spec"][of]) for each in found if of in each["spec"]]


def gpus(count: int) -> list[Gpu]:
    """As a driver of today tells of them, with everything that is published of a GPU."""
    return [
        Gpu(
            number=number,
            uuid=f"GPU-{number:08d}-0000-4000-8000-000000000000",
            minor=number,
            product_name="NVIDIA Emulated 80GB HBM3",
            memory_bytes=80 * GIB,
            architecture="Hopper",
            compute_capability="9.0.0",
            driver_version="580.82.7",
            bus_id=f"0000:{number % 256:02x}:00.0",
            pcie_root="pci0000:3a",
            numa_node=number % 2,
        )
        for number in range(count)
    ]


async def test_129_plain_devices_are_two_slices_of_one_pool(cluster: Cluster, tmp_path: Path) -> None:
    async with node(cluster, tmp_path) as (name, plugin):
        await publish(plugin, name, Pool.of([{"name": f"gpu-{number}"} for number in range(MANY)]))
        found = await asyncio.to_thread(slices, cluster, name)
        check_complete(found)
        assert lengths(found, "devices") == [128, 1]


async def test_129_gpus_of_two_groups_are_published_and_the_last_one_can_be_had(
    cluster: Cluster, team: Team, tmp_path: Path
) -> None:
    content = lanes(gpus(MANY), OFFERS, host_memory=MANY * 160 * GIB)
    async with node(cluster, tmp_path) as (name, plugin):
        await publish(plugin, name, Pool.of(content.devices, content.counter_sets))
        found = await asyncio.to_thread(slices, cluster, name)
        check_complete(found)
        assert lengths(found, "sharedCounters") == [8] * 16 + [1]
        assert lengths(found, "devices") == [64, 64, 64, 64, 2]
        assert [device for each in found for device in each["spec"].get("devices", ())] == list(content.devices)
        await asyncio.to_thread(ask_for_the_last, cluster, team, name)


async def test_one_more_group_replaces_the_pool_by_a_complete_one(cluster: Cluster, tmp_path: Path) -> None:
    async with node(cluster, tmp_path) as (name, plugin):
        for offered in (OFFERS[:1], OFFERS):
            content = lanes(gpus(MANY), offered, host_memory=MANY * 160 * GIB)
            await publish(plugin, name, Pool.of(content.devices, content.counter_sets))
        found = await asyncio.to_thread(slices, cluster, name)
        check_complete(found)
        assert sum(lengths(found, "devices")) == 2 * MANY
        assert found[0]["spec"]["pool"]["generation"] > 1


def ask_for_the_last(cluster: Cluster, team: Team, name: str) -> None:
    """Two claims of different jobs get its last GPU's lane, and one of the other group does not any more."""
    made = DeviceClassFor(cluster, "rl-a"), DeviceClassFor(cluster, "rl-b")
    try:
        for job, chosen in (("job-a", made[0]), ("job-b", made[0])):
            team.apply(*pod_with_claim(job, chosen.name, job, node=name))
            until(f"{job} has no GPU", lambda: allocated(team, job), limit_s=START_S)  # noqa: B023  called at once
            assert team.devices(job) == [f"{name}/gpu-{MANY - 1}-rl-a"]
        team.apply(*pod_with_claim("late", made[1].name, "job-a", node=name))
        team.wait_unschedulable("late")
    finally:
        for pod in ("job-a", "job-b", "late"):
            team.kubectl("delete", "pod", pod, "--force", "--ignore-not-found")
        for each in made:
            each.delete()


def allocated(team: Team, pod: str) -> str | None:
    return None if team.devices(pod) else json.dumps(team.pod(pod).get("status"))


class DeviceClassFor:
    """The class of one group of the driver of this test."""

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self.name = f"{group}.{uuid4().hex[:6]}.many"
        attributes = f"device.attributes['{DRIVER}']"
        terms = f"device.driver == '{DRIVER}' && {attributes}.group == '{group}' && {attributes}.index == {MANY - 1}"
        spec = {"selectors": [{"cel": {"expression": terms}}]}
        body = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": self.name},
            "spec": spec,
        }
        cluster.kubectl("apply", "-f", "-", given=json.dumps(body))

    def delete(self) -> None:
        self._cluster.kubectl("delete", "deviceclass", self.name)


def pod_with_claim(name: str, class_name: str, job: str, *, node: str) -> list[Object]:
    """A pod that may only be on that node, whatever the node's taints."""
    key = f"job_{job.replace('-', '_')}"
    exactly = {"deviceClassName": class_name, "capacity": {"requests": {key: "1"}}}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}]}
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": name}],
    }
    common = {"metadata": {"name": name}}
    template = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": {"devices": devices}},
    }
    return [template | common, {"apiVersion": "v1", "kind": "Pod", "spec": spec} | common]
