"""The node on Kubernetes: kubelet plugin and Snapshot Agent in one process, around one set of prepared claims.

The plugin comes first and needs nobody: claims can be unprepared without an NVIDIA driver, without an orchestrator, and
while the other half of a rolling update still has the devices. The agent follows as soon as it can.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Final

from dra_kubeletplugin import NotWorkingError
from dra_kubeletplugin.apiserver import ApiServer, Backoff
from prometheus_client import CollectorRegistry
from timeslice_api.errors import OperationFailed, TimesliceError
from timeslice_api.file_watch import FileWatch
from timeslice_api.tasks import cancelled
from timeslice_api.telemetry import TelemetryServer
from timeslice_api.tls import TlsFiles

from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.config import NodeConfig
from timeslice_driver.dra.checkpoint import Checkpoint, CheckpointError
from timeslice_driver.dra.config import PluginConfig
from timeslice_driver.dra.plugin import DraPlugin
from timeslice_driver.metrics import NodeMetrics
from timeslice_driver.node import Node
from timeslice_driver.pod_tokens import PodTokens
from timeslice_driver.processes import ProcFs

log = logging.getLogger(__name__)

_SHORTEST_S: Final = 1.0  # between tries to start the agent
_LONGEST_S: Final = 30.0
_CHECK_TIMEOUT_S: Final = 4.0  # less than a probe waits


class KubernetesNode:
    """Starts and stops both in the right order.

    Args:
        node: of the agent; its groups are not used.
        plugin: of the kubelet plugin.
        kubeconfig: path; None: as a pod, or as kubectl would.
        telemetry: address for metrics and probes, with the certificate of `node.tls`; empty: none.
    """

    def __init__(
        self, node: NodeConfig, plugin: PluginConfig, *, kubeconfig: str | None = None, telemetry: str = ""
    ) -> None:
        self._node_config = node
        self._plugin_config = plugin
        self._kubeconfig = kubeconfig
        self._telemetry = telemetry
        self._stack = AsyncExitStack()
        self._sockets = ClaimSockets(plugin.sockets, plugin.ca)
        self._registry = CollectorRegistry()
        self._metrics = NodeMetrics(self._registry, ProcFs(node.proc_root))
        self._fault = ""
        self.claims = ClaimParts(self._sockets)
        self.plugin: DraPlugin | None = None
        self.node: Node | None = None  # the agent, once it works
        self.telemetry_port = 0

    async def start(self) -> None:
        """Returns when the kubelet can reach the plugin; the agent follows.

        Raises:
            ConfigError: the configuration is at fault.
            OperationFailed: the state directory cannot be used.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Ends the agent after what it is doing, then the plugin. Nothing that is prepared or parked changes."""
        stack, self._stack = self._stack, AsyncExitStack()
        await stack.aclose()

    async def failed(self) -> None:
        """Waits until the plugin cannot go on, if ever.

        Raises:
            OperationFailed: then; the process had better start anew.
        """
        assert self.plugin
        error = await self.plugin.fatal
        raise OperationFailed(f"the kubelet plugin cannot go on: {error}", reason="PluginFailed") from error

    @property
    def unready(self) -> str:
        """Why the kubelet cannot use the node yet; empty when it can."""
        if self.plugin is None or not self.plugin.registered:
            return "the kubelet has not taken the plugin yet"
        return ""

    @property
    def fault(self) -> str:
        """Why the agent does not work; empty when it does. The plugin serves all the same."""
        return self._fault

    async def unhealthy(self) -> str:
        """Why the process had better start anew; empty when it is well."""
        if self.plugin is None:
            return ""  # it is starting
        if self.plugin.fatal.done():
            return f"the kubelet plugin cannot go on: {self.plugin.fatal.result()}"
        try:
            async with asyncio.timeout(_CHECK_TIMEOUT_S):
                await self.plugin.check()
        except (NotWorkingError, TimeoutError) as error:
            return f"the kubelet plugin does not answer: {error or 'no answer in time'}"
        return ""

    async def _start(self) -> None:
        await self._serve_telemetry()
        self._follow_ca()
        api = await self._stack.enter_async_context(await ApiServer.connect(kubeconfig=self._kubeconfig))
        plugin = DraPlugin(self._plugin_config, api, self.claims, registry=self._registry)
        try:
            await self._stack.enter_async_context(plugin)
        except CheckpointError as error:
            raise OperationFailed(str(error), reason="StateUnusable") from error
        self.plugin = plugin
        tokens = asyncio.create_task(PodTokens(api, self.claims, self._plugin_config.sockets).run())
        self._stack.push_async_callback(cancelled, tokens)
        work = asyncio.create_task(self._work())
        self._stack.push_async_callback(self._end, work)

    def _follow_ca(self) -> None:
        if self._plugin_config.ca is None:
            return
        TlsFiles(ca=str(self._plugin_config.ca)).check()
        watch = FileWatch(self._plugin_config.ca)
        watch.open()
        self._stack.callback(watch.close)
        task = asyncio.create_task(self._renew_ca(watch))
        self._stack.push_async_callback(cancelled, task)

    async def _renew_ca(self, watch: FileWatch) -> None:
        while True:
            await watch.changed()
            await asyncio.to_thread(self._sockets.renew_ca)
            log.info("the orchestrator's authorities in %s were read again", watch.path)

    async def _serve_telemetry(self) -> None:
        if self._telemetry:
            server = TelemetryServer(
                self._telemetry,
                self._registry,
                state=self._metrics.state,
                tls=self._node_config.tls,
                ready=lambda: self.unready,
                healthy=self.unhealthy,
            )
            await server.start()
            self._stack.push_async_callback(server.stop)
            self.telemetry_port = server.port

    async def _work(self) -> None:
        """Starts the agent, again and again until it works."""
        backoff = Backoff(shortest_s=_SHORTEST_S, longest_s=_LONGEST_S)
        while True:
            node = Node(
                self._node_config,
                claims=self.claims,
                sockets=self._sockets,
                meter=self._metrics,
                when_placed=self._catch_up,
            )
            try:
                await node.start()
            except TimesliceError as error:
                self._tell(f"{error.message}; {error.hint}" if error.hint else error.message)
            except Exception:  # the outermost loop: claims must be unprepared whatever is wrong with the agent
                log.exception("the node cannot start")
                self._fault = "the node cannot start; see its log"
            else:
                self.node = self._metrics.node = node
                self._fault = ""
                log.info("the node works: %d devices", len(node.devices))
                return
            await asyncio.sleep(backoff.next_s())

    def _tell(self, fault: str) -> None:
        if fault != self._fault:
            log.error("jobs cannot take turns on this node, and it is tried again: %s", fault)
        self._fault = fault

    async def _end(self, work: asyncio.Task[None]) -> None:
        await cancelled(work)
        node, self.node, self._metrics.node = self.node, None, None
        if node:
            await node.stop()

    async def _catch_up(self) -> None:
        """What the other half of a rolling update has prepared and unprepared while it had the devices.

        A record is written before its claim is in `claims`, and changed after it has left: so a claim that was there
        before the records were read and is in none of them is gone, and one that is in them and has gone meanwhile
        shows in the next reading.
        """
        checkpoint = Checkpoint(self._plugin_config.state_dir)
        try:
            while True:
                known = set(self.claims.claims)
                records = await asyncio.to_thread(checkpoint.read)
                if records.incomplete:  # the plugin is finding them anew
                    return
                held = {claim.uid for claim in records.held}
                missing = [claim.prepared for claim in records.completed if claim.uid not in known]
                for uid in known - held:
                    await self.claims.remove(uid)
                for claim in missing:
                    await self.claims.add(claim)
                if not missing and known <= held:
                    return
        except CheckpointError as error:
            log.error("prepared claims are as they were at the start: %s", error)
