"""The kubelet plugin, everything put together, started and stopped in the right order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from types import TracebackType
from typing import Any, Final

from dra_kubeletplugin import (
    DroppedFieldsError,
    Plugin,
    PublishError,
    RegistrationError,
)
from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, Backoff
from prometheus_client import CollectorRegistry
from timeslice_api.kinds import names as kinds
from timeslice_api.tasks import cancelled

from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.dra import upkeep
from timeslice_driver.dra.alive import living_pods
from timeslice_driver.dra.candidate import NodeView
from timeslice_driver.dra.cdi import CdiFolder, Wiring
from timeslice_driver.dra.checkpoint import Checkpoint, CheckpointError
from timeslice_driver.dra.cluster import Cluster
from timeslice_driver.dra.config import PluginConfig
from timeslice_driver.dra.driver import TimesliceDriver
from timeslice_driver.dra.gpu_watch import GpuWatch
from timeslice_driver.dra.look import Look
from timeslice_driver.dra.metrics import PluginMetrics
from timeslice_driver.dra.preparation import Files, Preparation
from timeslice_driver.dra.publication import Publication
from timeslice_driver.dra.records import Records
from timeslice_driver.dra.refusals import RefusedError
from timeslice_driver.dra.reports import Reports
from timeslice_driver.dra.shared_claims import SharedClaims
from timeslice_driver.dra.vendor_cdi import VendorCdi
from timeslice_driver.processes import ProcFs

log = logging.getLogger(__name__)

_COMPLETE_S: Final = 10.0  # less than the kubelet waits for a call
_GATHER_S: Final = 0.05  # for the claims that come with it
_LEAST_SHARE: Final = 0.5  # of a small node's memory is for snapshots, whatever the reserve


class DraPlugin:
    """The node as the kubelet and the scheduler see it. An async context manager: claims are served while inside.

    It starts without the NVIDIA driver and without an API server. Claims that were prepared are in `parts` again when
    it has started, before anybody else has to know of them.

    Args:
        config: see there.
        api: the API server.
        parts: the node's other half.
        registry: where metrics are shown.
        steps: see `Preparation`.
    """

    def __init__(
        self,
        config: PluginConfig,
        api: ApiServer,
        parts: ClaimParts,
        *,
        registry: CollectorRegistry | None = None,
        steps: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.config = config
        self.metrics = PluginMetrics(registry)
        self.fatal: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._api = api
        self._stack = AsyncExitStack()
        self._complete = asyncio.Event()
        self._claims_changed = asyncio.Event()
        self._look = Look(config.libnvml, config.sys_root)
        self._procfs = ProcFs(config.proc_root, config.boot_id_file)
        self._checkpoint = Checkpoint(config.state_dir)
        self._gpus = GpuWatch(self._look, self._checkpoint, self.metrics, self._changed)
        self._cdi = CdiFolder(config.cdi_dir)
        self._cluster = Cluster(api, config.node_name, self._changed)
        vendor = VendorCdi([config.cdi_static_dir, config.cdi_dir])
        files = Files(self._checkpoint, self._cdi, vendor, config.dev_root)
        wiring = Wiring(config.orchestrator, config.sockets, with_ca=config.ca is not None)
        self._preparation = Preparation(files, parts, wiring, view=self.view, steps=steps)
        self._reports = Reports(api, node=config.node_name, instance=config.pod_uid)
        self._publication = Publication(
            self._checkpoint, self.view, self.metrics, pool=config.node_name, wanted=config.mode
        )
        self._driver = TimesliceDriver(
            self._preparation,
            self._reports,
            self.metrics,
            ready=self._when_complete,
            on_failure=self._failed,
            changed=self._note_claims,
        )
        self._shared = SharedClaims(api, self._refresh_pods)
        self._plugin = Plugin(kinds.DRIVER, self._driver, config.node_name, api, **self._places())

    async def __aenter__(self) -> DraPlugin:
        """Raises CheckpointError when the state directory cannot be used."""
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def registered(self) -> bool:
        """Whether the kubelet has taken the plugin."""
        return self._plugin.registered

    @property
    def publication(self) -> Publication:
        """What is published."""
        return self._publication

    @property
    def reports(self) -> Reports:
        """What people are told."""
        return self._reports

    def view(self) -> NodeView:
        """The node, now."""
        return NodeView(self._gpus.gpus, self._cluster.groups, self._cluster.labels, self._host_memory())

    async def check(self) -> None:
        """The plugin answers on its own sockets. Raises NotWorkingError."""
        await self._plugin.check()

    async def clean(self) -> int:
        """Lets go of claims that went away without a word; returns how many.

        Raises:
            ApiServerError: it cannot be told which.
        """
        records = await asyncio.to_thread(self._checkpoint.read)
        gone = await upkeep.gone_claims(self._api, records.held, lambda uids: living_pods(self._procfs, uids))
        for claim in gone:
            log.warning("%s was deleted while nobody was told: it is unprepared", claim, extra=claim.about)
            async with self._plugin.exclusively():
                await self._preparation.unprepare(claim.uid)
        if gone:
            self._note_claims()
        return len(gone)

    async def _start(self) -> None:
        boot = await asyncio.to_thread(self._procfs.boot_id)
        records = await asyncio.to_thread(upkeep.begin_boot, self._checkpoint, boot)
        self._stack.push_async_callback(self._look.close)
        await self._gpus.look()
        await self._preparation.restore(records)
        for uid in await asyncio.to_thread(upkeep.remove_orphans, self._cdi, self._checkpoint):
            log.info("the CDI spec of claim %s was left over, and is removed", uid, extra={"claim_uid": uid})
        self._keep(self._cluster.run())
        self._keep(self._reports.run())
        self._keep(self._shared.run())
        self._keep(self._follow_claims())
        await self._stack.enter_async_context(self._plugin)
        self._keep(self._serve(anew=records.incomplete))
        self._keep(self._gpus.run(self.config.look_interval_s))
        self._keep(self._report())
        self._keep(self._clean_up())
        self._note_claims()

    async def _serve(self, *, anew: bool) -> None:
        """Publishes once it is known what; before, what is published by an earlier start stays."""
        if anew:
            await self._persistently(self._find_anew, "find prepared claims anew")
        self._complete.set()
        await self._cluster.heard()
        version = await self._persistently(self._api.server_version, "ask for the API server's version")
        await self._publication.run(self._plugin, version)

    async def _find_anew(self) -> None:
        gpus, claims = await upkeep.find_anew(
            self._api, self.config.node_name, view=self.view(), found=self._gpus.found, cdi=self._cdi
        )

        def change(records: Records) -> Records:
            claimed = {claim.uid: claim for claim in claims} | dict(records.claims)
            return replace(records, gpus=gpus, claims=claimed, incomplete=False)

        records = await asyncio.to_thread(self._checkpoint.update, change)
        self._gpus.take(records.gpus)
        self._gpus.records_lost = False
        await self._preparation.restore(records)
        await asyncio.to_thread(upkeep.remove_orphans, self._cdi, self._checkpoint)
        self._note_claims()

    async def _refresh_pods(self, uid: str, pods: Mapping[str, str]) -> None:
        try:
            async with self._plugin.exclusively():
                await self._preparation.refresh_pods(uid, pods)
        except CheckpointError as error:
            log.error("the pods of claim %s are not as they should be: %s", uid, error, extra={"claim_uid": uid})

    async def _report(self) -> None:
        """For the pods' status, and for metrics."""
        while True:
            if self._gpus.records_lost and self._complete.is_set() and not self.fatal.done():
                self.fatal.set_result(CheckpointError("the records of prepared claims were lost; a start finds them"))
            last = self._publication.last
            names = [device["name"] for device in last.content.devices] if last else []
            self._plugin.report_health(self._gpus.health(self.config.node_name, names))
            self.metrics.slices_published.set(self._plugin.slices)
            await asyncio.sleep(self.config.look_interval_s)

    async def _follow_claims(self) -> None:
        """Counts what is prepared, and follows the claims that may get further pods."""
        while True:
            await self._claims_changed.wait()
            await asyncio.sleep(_GATHER_S)
            self._claims_changed.clear()
            records = await asyncio.to_thread(self._checkpoint.read)
            self.metrics.claims_prepared.set(len(records.completed))
            self._shared.follow(records.completed)

    async def _clean_up(self) -> None:
        while True:
            try:
                await self.clean()
            except (ApiServerError, RefusedError, CheckpointError) as error:
                log.warning("claims that went away are looked for later: %s", error)
            await asyncio.sleep(self.config.clean_interval_s)

    async def _failed(self, error: Exception) -> None:
        if isinstance(error, DroppedFieldsError):
            self._publication.dropped(error)
        elif isinstance(error, (PublishError, RegistrationError)):
            log.error("%s", error)
        elif not self.fatal.done():
            self.fatal.set_result(error)

    async def _persistently(self, call: Callable[[], Coroutine[Any, Any, Any]], what: str) -> Any:
        backoff = Backoff(shortest_s=0.25, longest_s=30.0)
        while True:
            try:
                return await call()
            except (ApiServerError, CheckpointError) as error:
                log.warning("cannot %s, trying on: %s", what, error)
                await asyncio.sleep(backoff.next_s())

    def _keep(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs it until the plugin stops; a defect in it is fatal."""
        task = asyncio.create_task(coroutine)
        task.add_done_callback(self._ended)
        self._stack.push_async_callback(cancelled, task)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception) and not self.fatal.done():
            self.fatal.set_result(error)

    async def _when_complete(self) -> str:
        """Waits until the records are, which takes a moment on a new node; why they are not, if it takes longer."""
        try:
            async with asyncio.timeout(_COMPLETE_S):
                await self._complete.wait()
        except TimeoutError:
            return "the plugin's records were lost, and the API server does not answer to make them anew"
        return ""

    def _note_claims(self) -> None:
        """Other claims are prepared than before."""
        self._claims_changed.set()
        self._publication.change()

    def _changed(self) -> None:
        self._publication.change()
        self.metrics.host_memory_bytes.set(self._host_memory())

    def _host_memory(self) -> int:
        """What snapshots may take on the node in all (bytes)."""
        if self.config.host_memory is not None:
            return self.config.host_memory
        allocatable = self._cluster.allocatable_memory or self._procfs.total_memory()
        return max(allocatable - self.config.host_memory_reserve, int(allocatable * _LEAST_SHARE))

    def _places(self) -> dict[str, Any]:
        config = self.config
        places = {"registry_dir": config.registry_dir, "data_dir": config.data_dir}
        return {
            **{name: path for name, path in places.items() if path is not None},
            "cdi_dir": config.cdi_dir,
            "pod_uid": config.pod_uid,
            "pods": True,
            "health": True,
        }
