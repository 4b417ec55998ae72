"""The orchestrator on Kubernetes: one of several processes leads, by a Lease, and only that one can be reached.

A process that waits for the lead binds no address. The leader shuts its predecessors out of the groups' records, reads
them, and serves. A clean stop hands the lead over at once. A leader that loses it stops answering and sending at that
moment, and the process ends: what it knows may be out of date, and a new one reads it afresh.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, Election, Leadership, NoClusterError
from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from timeslice_api.errors import ConfigError, StoreFailed, Unavailable
from timeslice_api.tasks import cancelled

from timeslice_orchestrator.access.exposure import is_exposed, warn_of_open
from timeslice_orchestrator.access.gate import Gate
from timeslice_orchestrator.config import KubernetesConfig
from timeslice_orchestrator.core.effects import Effect
from timeslice_orchestrator.core.events import Event, GroupsChanged
from timeslice_orchestrator.kubernetes.permissions import Permissions
from timeslice_orchestrator.kubernetes.shown import Showing
from timeslice_orchestrator.kubernetes.status_store import StatusStore
from timeslice_orchestrator.kubernetes.token_reviews import TokenReviews
from timeslice_orchestrator.kubernetes.watching import Watching
from timeslice_orchestrator.listen import Listener
from timeslice_orchestrator.serving import Serving
from timeslice_orchestrator.telemetry import Telemetry

_log = logging.getLogger(__name__)

EPOCH_ANNOTATION = "timeslice.dev/epoch"
_RETRY_S = 0.5  # of reading the groups, while it leads
_TIMEOUT_S = 5.0  # of a request to the API server: shorter than the time for which the lead outlives a lost one


class KubernetesOrchestrator:
    """One process: `await start()`, which returns when it leads and serves; `await lost()`; at the end `await stop()`.

    Args:
        config: the Lease, addresses, time limits.
    """

    def __init__(self, config: KubernetesConfig) -> None:
        self._config = config
        self._listeners = [Listener(address, config.tls) for address in config.listen]
        self._telemetry = Telemetry()
        self._stack = AsyncExitStack()
        self._lost: asyncio.Future[str] | None = None
        self.telemetry_port = 0  # once started, if there is one

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, in the order of the config, with the ports that were chosen."""
        return tuple(listener.address for listener in self._listeners)

    async def start(self) -> None:
        """Waits for the lead, then serves. Cancel it to give up.

        Raises:
            ConfigError: there is no cluster, an address cannot be listened on, or the records are of a newer version.
            Unavailable: the lead was lost before it served.
        """
        if not self._listeners:
            raise ConfigError("listen names no address")
        if self._config.telemetry_listen:
            served = self._telemetry.served(self._config.telemetry_listen, self._config.tls)
            self.telemetry_port = (await self._stack.enter_async_context(served)).port
        api = await self._connected()
        leadership = await self._stack.enter_async_context(await self._election(api).lead())
        try:
            await self._lead(api, leadership)
        except ApiServerError as error:
            raise Unavailable(f"the API server failed at the start: {error}") from error

    async def lost(self) -> None:
        """Returns never; raises Unavailable when it leads no longer. Nothing is answered or sent from then on."""
        assert self._lost is not None
        reason = await asyncio.shield(self._lost)
        raise Unavailable(
            f"the lead is lost ({reason})", hint="it is another one's now; start this one again to follow"
        )

    async def stop(self) -> None:
        """Tells clients and nodes, writes what was decided, and hands the lead over, within 10 s. Safe to repeat."""
        await self._stack.aclose()

    async def _connected(self) -> ApiServer:
        try:
            api = await ApiServer.connect(kubeconfig=self._config.kubeconfig or None, timeout_s=_TIMEOUT_S)
        except NoClusterError as error:
            raise ConfigError(str(error), hint="run it in a pod, or name a --kubeconfig") from error
        return await self._stack.enter_async_context(api)

    def _election(self, api: ApiServer) -> Election:
        config = self._config
        _log.info("waiting for lease %s/%s", config.namespace, config.lease_name)
        return Election(
            api,
            namespace=config.namespace,
            name=config.lease_name,
            identity=config.identity,
            lease_s=config.lease_s,
            renew_s=config.lease_s * 2 / 3,
            retry_s=config.lease_s * 2 / 15,
            epoch_annotation=EPOCH_ANNOTATION,
        )

    async def _lead(self, api: ApiServer, leadership: Leadership) -> None:
        store = await _opened(api, leadership)

        def in_office() -> bool:
            return leadership.held and not store.deposed.done()

        told = _Told(self._telemetry, store)
        serving = Serving(self._config.settings, store, store.records, observer=told, in_office=in_office)
        watching = Watching(api, serving.discovery, instance=self._config.identity)
        told.showing = Showing(store, serving.engine.view, watching.setbacks_said)
        self._stack.push_async_callback(watching.stop)
        self._stack.push_async_callback(serving.stop)
        await watching.start()
        await self._stack.enter_async_context(_running(told.showing))
        await self._stack.enter_async_context(self._minded(leadership, store, serving))
        await serving.listen(self._listeners, self._gate(api, watching))
        self._stack.callback(self._telemetry.leads, None)
        self._telemetry.leads(serving.engine, lambda: _figures(watching))
        _log.info("leading epoch=%d addresses=%s", store.epoch, ",".join(self.addresses), extra={"epoch": store.epoch})

    def _gate(self, api: ApiServer, watching: Watching) -> Gate:
        if not any(map(is_exposed, self._config.listen)):
            warn_of_open(self._config.listen)
            return Gate()
        return Gate(TokenReviews(api), Permissions(api, watching.cluster, self._config.node_account))

    @asynccontextmanager
    async def _minded(self, leadership: Leadership, store: StatusStore, serving: Serving) -> AsyncIterator[None]:
        """Ends the serving at the moment when the lead is lost."""
        self._lost = asyncio.get_running_loop().create_future()
        minding = asyncio.create_task(self._mind(self._lost, leadership, store, serving))
        try:
            yield
        finally:
            await cancelled(minding)

    async def _mind(
        self, lost: asyncio.Future[str], leadership: Leadership, store: StatusStore, serving: Serving
    ) -> None:
        await asyncio.wait({leadership.lost, store.deposed}, return_when=asyncio.FIRST_COMPLETED)
        reason = leadership.lost.result() if leadership.lost.done() else store.deposed.result()
        self._telemetry.leads(None)
        try:
            await serving.abandon()
        finally:
            lost.set_result(reason)


class _Told:
    """The observers of the engine."""

    def __init__(self, telemetry: Telemetry, store: StatusStore) -> None:
        self._telemetry = telemetry
        self._store = store
        self.showing: Showing | None = None

    def stepped(self, event: Event, effects: Iterable[Effect]) -> None:
        """See `engine.Observer`."""
        if isinstance(event, GroupsChanged):
            self._store.groups_are(group.group_id for group in event.groups)
        self._telemetry.stepped(event, effects)
        if self.showing is not None:
            self.showing.stepped(event, effects)

    def wrote(self, seconds: float) -> None:
        """See `engine.Observer`."""
        self._telemetry.wrote(seconds)


async def _opened(api: ApiServer, leadership: Leadership) -> StatusStore:
    """The store, as soon as the API server lets it be read. Raises StoreFailed when the lead is lost before."""
    while True:
        try:
            return await StatusStore.open(api, leadership)
        except StoreFailed as error:
            if not leadership.held:
                raise
            _log.warning("%s; tried again", error)
        await asyncio.sleep(_RETRY_S)


@asynccontextmanager
async def _running(showing: Showing) -> AsyncIterator[None]:
    task = asyncio.create_task(showing.run())
    task.add_done_callback(_tell_defect)
    try:
        yield
    finally:
        await cancelled(task)


def _tell_defect(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.error("the status of groups is not shown any more, by a defect", exc_info=error)


def _figures(watching: Watching) -> Iterable[Metric]:
    yield CounterMetricFamily("timeslice_pods_evicted", "Pods evicted for a refused claim.", value=watching.evicted)
    yield CounterMetricFamily(
        "timeslice_label_disagreements", "Labels seen that are not followed.", value=watching.disagreements
    )
