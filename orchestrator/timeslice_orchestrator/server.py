"""The orchestrator as a whole, outside Kubernetes: lock, store, groups file and what serves on them, put together and
taken apart in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from timeslice_api.errors import ConfigError
from timeslice_api.file_lock import FileLock
from timeslice_api.file_watch import FileWatch
from timeslice_api.tasks import cancelled

from timeslice_orchestrator.access.exposure import is_exposed, warn_of_open
from timeslice_orchestrator.access.gate import Gate
from timeslice_orchestrator.access.tokens_file import FileTokens
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.listen import Listener
from timeslice_orchestrator.serving import Serving
from timeslice_orchestrator.store import SqliteStore

_log = logging.getLogger(__name__)

STORE_NAME = "orchestrator.sqlite3"


class Orchestrator:
    """One orchestrator in the running loop: `await start()`, later `await stop()`; or `async with`.

    Args:
        config: addresses, state directory, groups file, time limits.
    """

    def __init__(self, config: OrchestratorConfig) -> None:
        self._config = config
        self._listeners = [Listener(address, config.tls) for address in config.listen]
        self._lock = FileLock(config.state_dir / "lock", f"state directory {config.state_dir}", by="orchestrator")
        self._tokens: FileTokens | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = AsyncExitStack()
        self._running = False
        self.telemetry_port = 0  # once started, if there is one

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
        return self._serving.discovery.file_error

    async def start(self) -> None:
        """Reads the state, and listens; one that stands by waits for its turn first. Cancel it to give up.

        Raises:
            ConfigError: an address or the state directory is in use or unusable, the groups file or tokens file is
                wrong, or other machines could call and no tokens file says who may.
            StoreFailed: the state cannot be read or written.
        """
        if not self._listeners:
            raise ConfigError("listen names no address")
        self._read_tokens()
        await self._take_state_dir()
        try:
            self._store = SqliteStore.open(self._config.state_dir / STORE_NAME, shared=self._config.standby)
        except BaseException:
            self._lock.release()
            raise
        try:
            await self._serve()
        except BaseException:
            await self._close()
            raise
        self._running = True
        _log.info("orchestrator started epoch=%d addresses=%s", self.epoch, ",".join(self.addresses))

    async def stop(self) -> None:
        """Tells waiting clients and nodes, and ends within 5 s. Queue and leases stay in the store. Safe to repeat."""
        if not self._running:
            return
        self._running = False
        await self._end_tasks()
        await self._serving.stop()
        await self._close()
        _log.info("orchestrator stopped epoch=%d", self._store.epoch)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _take_state_dir(self) -> None:
        try:
            self._config.state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot use state directory {self._config.state_dir}: {error}") from error
        if self._config.standby:
            await self._lock.wait(lambda owner: _log.info("standby: %s leads", owner))
        else:
            self._lock.take()

    async def _serve(self) -> None:
        observer = None
        if self._config.telemetry_listen:
            from timeslice_orchestrator.telemetry import Telemetry  # prometheus-client is not needed without it

            observer = Telemetry()
            served = observer.served(self._config.telemetry_listen, self._config.tls)
            self.telemetry_port = (await self._stack.enter_async_context(served)).port
        self._serving = Serving(self._config.settings, self._store, self._store.records, observer=observer)
        if self._tokens is not None:
            self._follow(self._tokens.path, self._tokens.read)
        if (groups := self._config.groups_file) is not None:
            self._follow(groups, lambda: self._serving.discovery.file_said(groups))
        self._serving.discovery.tell()
        await self._serving.listen(self._listeners, Gate(self._tokens), after_another=self._config.standby)
        if observer is not None:
            observer.leads(self._serving.engine)

    def _read_tokens(self) -> None:
        if self._config.tokens_file is not None:
            self._tokens = FileTokens(self._config.tokens_file)
        elif exposed := [address for address in self._config.listen if is_exposed(address)]:
            message = f"{exposed[0]} can be reached from other machines, and nothing says who may call"
            raise ConfigError(
                message, hint="name a --tokens file, which `timeslice token` fills, or listen on a socket"
            )
        else:
            warn_of_open(self._config.listen)

    def _follow(self, path: Path, read: Callable[[], None]) -> None:
        """Reads a file now, and again whenever it changes."""
        watch = FileWatch(path)
        watch.open()
        self._stack.callback(watch.close)
        read()
        _log.info("%s is in force", path)
        self._tasks.append(asyncio.create_task(_reread(watch, read)))

    async def _end_tasks(self) -> None:
        tasks, self._tasks = self._tasks, []
        await cancelled(*tasks)

    async def _close(self) -> None:
        await self._end_tasks()
        await self._stack.aclose()
        for listener in self._listeners:
            listener.release()
        self._store.close()
        self._lock.release()


async def _reread(watch: FileWatch, read: Callable[[], None]) -> None:
    while True:
        await watch.changed()
        try:
            read()
        except ConfigError as error:
            _log.error("%s; the last good one stays in force", error)
        else:
            _log.info("%s is in force", watch.path)
