"""The orchestrator as a whole: lock, store, core, discovery and gRPC server, put together and taken apart in order."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import TracebackType
from typing import Self, cast

import grpc.aio
from timeslice_api.errors import ConfigError, Stopping
from timeslice_api.pings import SERVER_PINGS
from timeslice_api.v1alpha1 import agent_link_pb2_grpc, orchestrator_pb2_grpc

from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.discovery import Discovery
from timeslice_orchestrator.discovery.file_watch import FileWatch
from timeslice_orchestrator.engine import Engine
from timeslice_orchestrator.listen import FileLock, Listener
from timeslice_orchestrator.rpc.agent_link import AgentLink
from timeslice_orchestrator.rpc.calls import Calls
from timeslice_orchestrator.rpc.links import Links
from timeslice_orchestrator.rpc.service import OrchestratorService
from timeslice_orchestrator.store import NodeRecord, SqliteStore

_log = logging.getLogger(__name__)

STORE_NAME = "orchestrator.sqlite3"
_STOP_S = 4.0  # for calls that are being answered
_OPTIONS = (
    # Undocumented, and without them gRPC cancels requests of a burst beyond about a thousand that are not yet accepted
    # (measured: 213 of 2,000 lost; none of 5,000 with them). How many may wait is the core's to say (QueueFull).
    ("grpc.server.max_pending_requests", 100_000),
    ("grpc.server.max_pending_requests_hard_limit", 200_000),
    *SERVER_PINGS,
    ("grpc.so_reuseport", 0),  # a port that is in use is an error, not a port to share
    ("grpc.max_receive_message_length", 4 << 20),
)


class Orchestrator:
    """One orchestrator in the running loop: `await start()`, later `await stop()`; or `async with`.

    Args:
        config: addresses, state directory, groups file, time limits.
    """

    def __init__(self, config: OrchestratorConfig) -> None:
        self._config = config
        self._listeners = [Listener(address) for address in config.listen]
        self._lock = FileLock(config.state_dir / "lock", f"state directory {config.state_dir}")
        self._watch = FileWatch(config.groups_file) if config.groups_file is not None else None
        self._watching: asyncio.Task[None] | None = None
        self._running = False

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where it listens, in the order of the config, with the ports that were chosen."""
        return tuple(listener.address for listener in self._listeners)

    @property
    def epoch(self) -> int:
        """Goes into every command; higher than that of any orchestrator before on this state directory."""
        return self._store.epoch

    @property
    def groups_file_error(self) -> str:
        """Why the newest groups file is not in force; empty when it is."""
        return self._discovery.file_error

    async def start(self) -> None:
        """Reads the state, and listens.

        Raises:
            ConfigError: an address or the state directory is in use or unusable, or the groups file is wrong.
            StoreFailed: the state cannot be read or written.
        """
        if not self._listeners:
            raise ConfigError("listen names no address")
        self._take_state_dir()
        try:
            self._store = SqliteStore.open(self._config.state_dir / STORE_NAME)
        except BaseException:
            self._lock.release()
            raise
        try:
            self._assemble()
            await self._listen()
        except BaseException:
            self._close()
            raise
        self._running = True
        if self._watch is not None:
            self._watching = asyncio.create_task(self._reread(self._watch))
        _log.info("orchestrator started epoch=%d addresses=%s", self.epoch, ",".join(self.addresses))

    async def stop(self) -> None:
        """Tells waiting clients and nodes, and ends within 5 s. Queue and leases stay in the store. Safe to repeat."""
        if not self._running:
            return
        self._running = False
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._engine.stop()
        self._links.end_all(Stopping("the orchestrator is being stopped"))
        await self._server.stop(_STOP_S)
        self._close()
        _log.info("orchestrator stopped epoch=%d", self._store.epoch)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def _take_state_dir(self) -> None:
        try:
            self._config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock.take()
        except OSError as error:
            raise ConfigError(f"cannot use state directory {self._config.state_dir}: {error}") from error

    def _assemble(self) -> None:
        records = [record for record in self._store.records if not isinstance(record, NodeRecord)]
        nodes = [record for record in self._store.records if isinstance(record, NodeRecord)]
        core = Core(self._config.settings, records, asyncio.get_running_loop().time())
        self._links = Links(self._store)
        self._engine = Engine(core, self._store, self._links.send)
        self._discovery = Discovery(self._engine, self._links, nodes)
        if self._watch is not None:
            self._watch.open()
            self._read(self._watch.path)
        self._discovery.tell()

    async def _listen(self) -> None:
        self._server = grpc.aio.server(interceptors=[Calls()], options=_OPTIONS)
        service = OrchestratorService(self._engine)
        agent_link = AgentLink(self._engine, self._links, self._discovery)
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(
            cast(orchestrator_pb2_grpc.OrchestratorServicer, service), self._server
        )
        agent_link_pb2_grpc.add_AgentLinkServicer_to_server(
            cast(agent_link_pb2_grpc.AgentLinkServicer, agent_link), self._server
        )
        for listener in self._listeners:
            listener.bind(self._server)
        await self._server.start()

    async def _reread(self, watch: FileWatch) -> None:
        while True:
            await watch.changed()
            try:
                self._read(watch.path)
            except ConfigError as error:
                _log.error("%s; the last good one stays in force", error)

    def _read(self, path: Path) -> None:
        self._discovery.file_said(path)
        _log.info("groups file %s is in force", path)

    def _close(self) -> None:
        if self._watch is not None:
            self._watch.close()
        for listener in self._listeners:
            listener.release()
        self._store.close()
        self._lock.release()
