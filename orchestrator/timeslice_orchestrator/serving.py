"""What serves nodes and jobs on one store: core, engine, discovery, links and gRPC server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

import grpc.aio
from timeslice_api.errors import Stopping
from timeslice_api.limits import SERVER_LIMITS, raise_open_files
from timeslice_api.pings import SERVER_PINGS
from timeslice_api.v1alpha1 import agent_link_pb2, orchestrator_pb2

from timeslice_orchestrator.access.gate import Gate
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.core.model import Settings
from timeslice_orchestrator.discovery import Discovery
from timeslice_orchestrator.engine import Engine, Observer
from timeslice_orchestrator.listen import Listener
from timeslice_orchestrator.rpc import calls
from timeslice_orchestrator.rpc.agent_link import AgentLink
from timeslice_orchestrator.rpc.links import Links
from timeslice_orchestrator.rpc.service import OrchestratorService
from timeslice_orchestrator.store import NodeRecord, Store, StoredRecord

_log = logging.getLogger(__name__)

_ORCHESTRATOR = orchestrator_pb2.DESCRIPTOR.services_by_name["Orchestrator"]
_AGENT_LINK = agent_link_pb2.DESCRIPTOR.services_by_name["AgentLink"]
_STOP_S = 4.0  # for calls that are being answered
_ABANDON_S = 0.5  # the same; gRPC would have them look cancelled by their callers
_OPTIONS = (
    # Undocumented, and without them gRPC cancels requests of a burst beyond about a thousand that are not yet accepted
    # (measured: 213 of 2,000 lost; none of 5,000 with them). How many may wait is the core's to say (QueueFull).
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    *SERVER_PINGS,
    ("grpc.so_reuseport", 0),  # a port that is in use is an error, not a port to share
    *SERVER_LIMITS,
)


class Serving:
    """Made in the running loop; then tell `discovery` of the groups, and `listen`.

    Args:
        settings: time limits of the core.
        store: where its records go.
        records: what the store held.
        observer, in_office: see `Engine`.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        records: Iterable[StoredRecord],
        *,
        observer: Observer | None = None,
        in_office: Callable[[], bool] | None = None,
    ) -> None:
        records = list(records)
        of_core = [record for record in records if not isinstance(record, NodeRecord)]
        nodes = [record for record in records if isinstance(record, NodeRecord)]
        core = Core(settings, of_core, asyncio.get_running_loop().time())
        self.links = Links(store)
        self.engine = Engine(core, store, self.links.send, observer=observer, in_office=in_office)
        self.discovery = Discovery(self.engine, self.links, nodes)
        self._server: grpc.aio.Server | None = None

    async def listen(self, listeners: Sequence[Listener], gate: Gate, *, after_another: bool = False) -> None:
        """Serves on these addresses whom the gate lets in; `after_another` had them, maybe until a moment ago.

        Raises:
            ConfigError: one cannot be listened on.
        """
        raise_open_files()
        self._server = grpc.aio.server(options=_OPTIONS)
        service = OrchestratorService(self.engine, gate)
        calls.serve(self._server, _ORCHESTRATOR, service, by_strangers=gate.asks)
        calls.serve(self._server, _AGENT_LINK, AgentLink(self.engine, self.links, self.discovery, gate))
        for listener in listeners:
            if after_another:
                await listener.succeed(self._server)
            else:
                listener.bind(self._server)
        await self._server.start()

    async def stop(self) -> None:
        """Tells waiting clients and nodes, writes what was decided, and ends, within 6 s. Safe to repeat."""
        await self.engine.stop()
        self.links.end_all(Stopping("the orchestrator is being stopped"))
        await self._stop_server(_STOP_S)

    async def abandon(self) -> None:
        """Ends at once: nothing is granted or sent any more, and whoever asks is told no more than to ask elsewhere."""
        self.engine.abandon()
        self.links.end_all(Stopping("this orchestrator leads no longer"))
        await self._stop_server(_ABANDON_S)

    async def _stop_server(self, grace_s: float | None) -> None:
        server, self._server = self._server, None
        if server is not None:
            await server.stop(grace_s)
