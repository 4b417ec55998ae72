"""The test cluster that the cluster's cases measure, with the product installed; hack/bench brings it up."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dra_kubeletplugin.apiserver import PODS, SLICES, ApiServer, Change, NotFoundError, Object, Reflector, Resource
from kube_cluster import Cluster

NAMESPACE = "timeslice"  # of the product
DRIVER = "gpu.timeslice.dev"
NODE = "node-a"
GROUPS = Resource("timeslice.dev", "v1alpha1", "timeslicegroups", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
LIMIT_S = 120.0
_AT_ONCE = 20


class NotReadyError(Exception):
    """The cluster is not as the bench needs it; the message says what to do."""


class Watched:
    """Objects of one kind, as they are now; `until` waits for what they are to be."""

    def __init__(self, reflector: Reflector, changed: asyncio.Event) -> None:
        self._reflector = reflector
        self._changed = changed

    @property
    def objects(self) -> Collection[Object]:
        """All of them."""
        return self._reflector.objects.values()

    async def until(self, reached: Callable[[Collection[Object]], object], *, limit_s: float = LIMIT_S) -> float:
        """When it was reached (monotonic). TimeoutError when it is not in time."""
        async with asyncio.timeout(limit_s):
            while True:
                self._changed.clear()
                if reached(self.objects):
                    return time.monotonic()
                await self._changed.wait()


@dataclass(frozen=True)
class Bench:
    """The cluster, a connection to it, and a namespace of the bench's own."""

    cluster: Cluster
    api: ApiServer
    namespace: str

    @asynccontextmanager
    async def watched(self, resource: Resource, **selectors: str) -> AsyncIterator[Watched]:
        """Objects that the selectors choose, known when this returns."""
        changed = asyncio.Event()

        def note(_: Change) -> None:
            changed.set()

        reflector = Reflector(self.api, resource, on_change=note, **selectors)  # type: ignore[arg-type]
        following = asyncio.create_task(reflector.run())
        try:
            async with asyncio.timeout(LIMIT_S):
                await reflector.synced.wait()
            yield Watched(reflector, changed)
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)

    @asynccontextmanager
    async def group(self, **spec: object) -> AsyncIterator[str]:
        """A TimesliceGroup of node-a's GPUs, published when this returns, and gone afterwards."""
        name = f"bench-{uuid.uuid4().hex[:6]}"
        chosen = {"nodeSelector": {"kubernetes.io/hostname": NODE}}
        async with self.watched(SLICES, fields=f"spec.driver={DRIVER}") as slices:
            await self.api.create(GROUPS, group_object(name, **chosen, **spec))
            try:
                await slices.until(lambda found: lanes(found, name))
                yield name
            finally:
                await remove(self.api, GROUPS, [name])

    async def pid(self, pod: Object) -> int:
        """Process id, on this machine, of the only container of a pod."""
        (status,) = pod["status"]["containerStatuses"]
        container = str(status["containerID"]).removeprefix("containerd://")
        node = self.cluster.nodes[pod["spec"]["nodeName"]]
        tasks = (await asyncio.to_thread(node.ctr, "tasks", "ls")).splitlines()
        return next(int(line.split()[1]) for line in tasks if line.startswith(container))

    async def product_pods(self, component: str) -> list[Object]:
        """The product's running pods of a component, `node` or `orchestrator`."""
        labels = f"app.kubernetes.io/component={component}"
        pods, _ = await self.api.list(PODS, namespace=NAMESPACE, labels=labels)
        return [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """What is measured on. NotReadyError when the cluster is not up, or the product is not installed."""
    cluster = Cluster(os.environ.get("TIMESLICE_E2E_CLUSTER", "timeslice"))
    if not cluster.is_up():
        raise NotReadyError(f"cluster {cluster.name} is not up: run hack/bench cluster")
    async with await ApiServer.connect(kubeconfig=str(cluster.kubeconfig)) as api:
        made = Bench(cluster, api, f"bench-{uuid.uuid4().hex[:6]}")
        if not await made.product_pods("node"):
            raise NotReadyError(f"timeslice is not installed on cluster {cluster.name}: run hack/bench cluster")
        await api.create(NAMESPACES, {"metadata": {"name": made.namespace}})
        try:
            yield made
        finally:
            await api.delete(NAMESPACES, made.namespace)


def group_object(name: str, **spec: object) -> Object:
    """A TimesliceGroup."""
    return {
        "apiVersion": GROUPS.api_version,
        "kind": "TimesliceGroup",
        "metadata": {"name": name},
        "spec": {"seats": 2, **spec},
    }


def lanes(slices: Collection[Object], group: str) -> list[str]:
    """Names of node-a's devices of the group; none while the pool is not complete."""
    pool = [each["spec"] for each in slices if each["spec"].get("nodeName") == NODE]
    newest = max((each["pool"]["generation"] for each in pool), default=0)
    current = [each for each in pool if each["pool"]["generation"] == newest]
    if not current or len(current) != current[0]["pool"]["resourceSliceCount"]:
        return []
    devices = [device for each in current for device in each.get("devices", ())]
    return [device["name"] for device in devices if device["attributes"]["group"].get("string") == group]


async def remove(
    api: ApiServer, resource: Resource, names: Collection[str], *, namespace: str = "", limit_s: float = LIMIT_S
) -> None:
    """They are gone when this returns. TimeoutError when they are not in time."""
    async with asyncio.timeout(limit_s):
        await in_bursts(lambda name: _remove(api, resource, name, namespace), names)


async def in_bursts(call: Callable[[str], Awaitable[object]], names: Collection[str]) -> None:
    """The call for each, a few of them at the same time."""
    left = list(names)

    async def work() -> None:
        while left:
            await call(left.pop())

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_AT_ONCE):
                tasks.create_task(work())
    except ExceptionGroup as failures:  # the first says it
        raise failures.exceptions[0] from None


async def _remove(api: ApiServer, resource: Resource, name: str, namespace: str) -> None:
    try:
        await api.delete(resource, name, namespace=namespace)
        while True:
            await api.get(resource, name, namespace=namespace)
            await asyncio.sleep(0.2)
    except NotFoundError:
        return
