"""The plugin: everything between a driver, its kubelet and the API server, for as long as its context lasts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import grpc.aio

from dra_kubeletplugin import liveness
from dra_kubeletplugin.apiserver import ApiServer
from dra_kubeletplugin.calls import Calls
from dra_kubeletplugin.claim_reader import ClaimReader
from dra_kubeletplugin.driver import Driver
from dra_kubeletplugin.health import DeviceHealth
from dra_kubeletplugin.health_service import HealthFeed, HealthService
from dra_kubeletplugin.kubelet_api import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    health_v1_pb2,
    health_v1_pb2_grpc,
    health_v1alpha1_pb2,
    health_v1alpha1_pb2_grpc,
    registration_v1_pb2_grpc,
)
from dra_kubeletplugin.metadata import MetadataFiles
from dra_kubeletplugin.node_lock import NodeLock
from dra_kubeletplugin.node_service import NodeService
from dra_kubeletplugin.pools import Pool
from dra_kubeletplugin.publishing.plan import Owner
from dra_kubeletplugin.publishing.publisher import Publisher
from dra_kubeletplugin.registration import Registration
from dra_kubeletplugin.requests import CallReport
from dra_kubeletplugin.servers import SocketServer
from dra_kubeletplugin.sockets import Sockets, remove_dead

log = logging.getLogger(__name__)

_SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")  # kubelet takes the first that it knows
_HEALTH_SERVICES = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
_START_S = 10.0
_GRACE_OF_REGISTRATION_S = 1.0


class Plugin:
    """A DRA driver on this node, known to kubelet while its async context lasts.

    Entering starts the service, then the registration; kubelet finds that by itself and calls the driver from then on.
    Leaving ends the service first, after `stop_grace_s` at most for calls under way, so that none is cut off by the
    end of the registration. The ResourceSlices stay, for the next instance; without one kubelet removes them after half
    a minute.

    Args:
        driver_name: a DNS subdomain of at most 63 characters.
        driver: gets the calls.
        node_name: whose kubelet this is for.
        api: a connection to the API server; stays open.
        registry_dir: where kubelet looks for sockets; another one if its root folder is not /var/lib/kubelet.
        data_dir: of the driver, /var/lib/kubelet/plugins/DRIVER by default. Must have the same path for kubelet.
        cdi_dir: where the runtime looks for CDI specs that come and go; only for `metadata`.
        pod_uid: of the pod that this process runs in. With it two instances can be there at once, in a rolling update
            with `maxSurge`: both may get calls, under one lock; the older one publishes until it ends.
        pods: whether claims come with their pods (`Claim.pod_objects`), which needs the right to get pods.
        serialize: whether calls have the node for themselves.
        lock_timeout_s: how long a call waits for that; below kubelet's limit for a call, 45 s.
        stop_grace_s: for calls under way when the context is left.
        health: whether `report_health` is going to be called.
        metadata: whether containers get files that describe their devices.
        liveness_address: where to offer grpc.health.v1, for a gRPC probe (`[::]:51515`); none if empty.
        observe: told of each call that was answered, for metrics; must not block.

    Raises (when entered):
        SocketInUseError: another process is this instance.
        OSError, TimeoutError: the folders cannot be used.
    """

    def __init__(
        self,
        driver_name: str,
        driver: Driver,
        node_name: str,
        api: ApiServer,
        *,
        registry_dir: Path = Path("/var/lib/kubelet/plugins_registry"),
        data_dir: Path | None = None,
        cdi_dir: Path = Path("/var/run/cdi"),
        pod_uid: str = "",
        pods: bool = False,
        serialize: bool = True,
        lock_timeout_s: float = 30.0,
        stop_grace_s: float = 10.0,
        health: bool = False,
        metadata: bool = False,
        liveness_address: str = "",
        observe: Callable[[CallReport], None] | None = None,
    ) -> None:
        self._driver_name = driver_name
        self._driver = driver
        self._data_dir = data_dir or Path("/var/lib/kubelet/plugins") / driver_name
        self._sockets = Sockets.of(driver_name, registry=registry_dir, data=self._data_dir, pod_uid=pod_uid)
        self._lock = NodeLock(self._data_dir / "serialize.lock")
        self._stop_grace_s = stop_grace_s
        self._liveness_address = liveness_address
        self._observe = observe or (lambda report: None)
        self._health = HealthFeed() if health else None
        self._calls = Calls(
            driver,
            ClaimReader(api, driver_name, pods=pods),
            lock=self._lock if serialize else None,
            lock_timeout_s=lock_timeout_s,
            metadata=MetadataFiles(driver_name, data=self._data_dir, cdi=cdi_dir) if metadata else None,
        )
        self._publisher = Publisher(Owner(driver_name, node_name), api, failed=driver.failed)
        services = (*_SERVICES, *(_HEALTH_SERVICES if health else ()))
        self._registration = Registration(driver_name, self._sockets.service, services, failed=self._tell)
        self._background: set[asyncio.Task[None]] = set()
        self._exit = AsyncExitStack()

    async def __aenter__(self) -> Plugin:
        async with AsyncExitStack() as stack:
            await self._start(stack)
            self._exit = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._exit.aclose()

    @property
    def registered(self) -> bool:
        """Whether kubelet has said that it uses this plugin. It stays so while kubelet is away."""
        return self._registration.registered.is_set()

    @property
    def slices(self) -> int:
        """How many ResourceSlices of this driver there are for this node now."""
        return self._publisher.slices

    def publish(self, pools: Mapping[str, Pool]) -> None:
        """From now on this node offers these pools and no others. Returns at once.

        They are written in the background, and again when somebody changes or deletes them, with growing waits after
        failures, of which `Driver.failed` is told. Nothing is written before the first call, and nothing while an older
        instance of the plugin is still there. A device that is allocated must stay published: taint it instead.

        Raises:
            ValueError: a pool names a device twice, or a slice has more than 128 devices.
        """
        self._publisher.publish(pools)

    async def published(self) -> None:
        """Waits until the API server has all that was published last; has no time limit of its own.

        Never let readiness depend on it: an older instance goes only when this one is ready.

        Raises:
            InvalidPoolError, DroppedFieldsError: it never will.
        """
        await self._publisher.published()

    def report_health(self, devices: Sequence[DeviceHealth]) -> None:
        """The health of all devices, from whoever watches them; kubelet shows it in the status of pods.

        To be called again at least every 10 to 15 seconds, also when nothing has changed: a device whose report is
        older than its `timeout_s` counts as unknown.

        Raises:
            RuntimeError: the plugin was made without `health=True`.
        """
        if self._health is None:
            raise RuntimeError("the plugin was made without health=True")
        self._health.report(devices)

    def exclusively(self) -> AbstractAsyncContextManager[None]:
        """A context in which no call is under way, in any instance: for cleaning up. Has no time limit of its own."""
        return self._lock.held()

    async def check(self) -> None:
        """Asks its own sockets what kubelet asks. For a liveness probe.

        Raises:
            NotWorkingError: they do not answer.
        """
        await liveness.check(self._sockets)

    async def _start(self, stack: AsyncExitStack) -> None:
        self._data_dir.mkdir(parents=True, exist_ok=True)
        stack.push_async_callback(self._end_background)
        # Another instance could take a socket for dead between its bind and its listen.
        async with NodeLock(self._data_dir / "start.lock").held(timeout_s=_START_S):
            remove_dead(self._sockets.relatives(self._driver_name))
            # What is registered must be there before; at the end the registration outlives the calls under way.
            service = await SocketServer.listen(self._sockets.service, self._add_services)
            try:
                registrar = await SocketServer.listen(self._sockets.registration, self._add_registration)
            except BaseException:
                await service.stop(0)
                raise
            stack.push_async_callback(registrar.stop, _GRACE_OF_REGISTRATION_S)
            stack.push_async_callback(self._end_service, service)
        if self._liveness_address:
            await self._offer_liveness(stack)
        self._spawn(self._publish_in_turn(), "publisher")

    async def _end_service(self, service: SocketServer) -> None:
        if self._health is not None:
            self._health.close()
        await service.stop(self._stop_grace_s)
        await self._calls.finish(timeout_s=self._stop_grace_s)

    def _add_services(self, server: grpc.aio.Server) -> None:
        v1 = NodeService(self._calls, dra_v1_pb2, self._observe)
        v1beta1 = NodeService(self._calls, dra_v1beta1_pb2, self._observe)
        add: Any = dra_v1_pb2_grpc.add_DRAPluginServicer_to_server
        add(v1, server)
        add = dra_v1beta1_pb2_grpc.add_DRAPluginServicer_to_server
        add(v1beta1, server)
        if self._health is not None:
            add = health_v1_pb2_grpc.add_DRAResourceHealthServicer_to_server
            add(HealthService(self._health, health_v1_pb2), server)
            add = health_v1alpha1_pb2_grpc.add_DRAResourceHealthServicer_to_server
            add(HealthService(self._health, health_v1alpha1_pb2), server)

    def _add_registration(self, server: grpc.aio.Server) -> None:
        add: Any = registration_v1_pb2_grpc.add_RegistrationServicer_to_server
        add(self._registration, server)

    async def _offer_liveness(self, stack: AsyncExitStack) -> None:
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", 64 << 10)])
        liveness.LivenessService(self.check).add_to(server)
        if not server.add_insecure_port(self._liveness_address):
            raise OSError(f"cannot listen at {self._liveness_address}")
        await server.start()
        stack.push_async_callback(server.stop, 0.5)

    async def _publish_in_turn(self) -> None:
        """One instance at a time: two that want something different would undo each other's writes for ever."""
        async with NodeLock(self._data_dir / "publish.lock").held():
            await self._publisher.run()

    def _tell(self, error: Exception) -> None:
        self._spawn(self._driver.failed(error), "failed")

    def _spawn(self, work: Coroutine[Any, Any, None] | Awaitable[None], name: str) -> None:
        task = asyncio.create_task(self._watched(work), name=f"{self._driver_name} {name}")
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # nobody awaits this task: the driver is who may end the process
            log.exception("the plugin's background failed")
            await self._driver.failed(error)

    async def _end_background(self) -> None:
        tasks = set(self._background)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
