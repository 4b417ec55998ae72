"""What a daemon tells over HTTP: its metrics, whether it lives, and whether it is ready.

    GET /metrics    of a registry of prometheus-client, in the format that the scraper asks for
    GET /healthz    200 while the daemon is well, 503 with the reason when it had better be started anew
    GET /readyz     200 when it serves, 503 with the reason until then

Nobody is asked who they are: docs/security.md says why. A connection is for one request, and ends after 10 s whatever
happens on it, so that silent or slow ones keep nobody out.

aiohttp and prometheus-client are not part of the client: they are imported when a server starts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from timeslice_api.errors import ConfigError
from timeslice_api.limits import raise_open_files
from timeslice_api.tls import TlsFiles, listens_by_tls, server_context
from timeslice_api.whole_numbers import PORTS, whole_number

if TYPE_CHECKING:
    from aiohttp import web
    from prometheus_client import CollectorRegistry, Metric

_log = logging.getLogger(__name__)

_OPENMETRICS: Final = "application/openmetrics-text"
_HANDSHAKE_S: Final = 5.0
_SHARE: Final = 0.1  # of the daemon's time, for making the metrics: those of 500 groups take more than a second
_LONGEST_S: Final = 10.0  # of a connection, with its handshake; a probe waits for 5 s


class TelemetryServer:
    """One HTTP server, in the event loop that starts it.

    Args:
        address: `host:port`, `[host]:port` for IPv6, or `:port` for every address; port 0 takes a free one.
        registry: whose metrics it serves. It is read in a thread, beside the event loop.
        state: further metrics, which are read in the event loop; so it must not block.
        tls: certificate and key, read again when they change; `timeslice_api.tls` says where it needs them. `ca` does
            not count: probes and scrapers show no certificate.
        ready, healthy: say why the daemon is not; an empty answer means that it is. `healthy` may take its time, less
            than a probe waits.
    """

    def __init__(
        self,
        address: str,
        registry: CollectorRegistry,
        *,
        state: Callable[[], Iterable[Metric]] = tuple,
        tls: TlsFiles | None = None,
        ready: Callable[[], str] = lambda: "",
        healthy: Callable[[], str | Awaitable[str]] = lambda: "",
    ) -> None:
        self._address = address
        self._registry = registry
        self._state = state
        self._tls = TlsFiles(cert=tls.cert, key=tls.key) if tls else TlsFiles()
        self._ready = ready
        self._healthy = healthy
        self._made: dict[str, tuple[float, bytes]] = {}  # the metrics in each format, and how long they will do
        self._making = asyncio.Lock()
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self.port = 0  # that it listens on, once started

    async def start(self) -> None:
        """Listens.

        Raises:
            ConfigError: the address is none, cannot be listened on, or would be reached by others without TLS; or the
                certificate cannot be used.
        """
        from aiohttp import web

        host, port = split_address(self._address)
        context = server_context(self._tls) if listens_by_tls(self._address, self._tls) else None
        raise_open_files()
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/readyz", self._readiness)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        handshake_s = _HANDSHAKE_S if context else None
        create = asyncio.get_running_loop().create_server
        try:
            self._server = await create(
                self._connection, host or None, port, ssl=context, ssl_handshake_timeout=handshake_s
            )
        except OSError as error:
            await self.stop()
            raise ConfigError(f"cannot listen on {self._address} for telemetry: {error.strerror}") from error
        self.port = int(self._server.sockets[0].getsockname()[1])
        if context is None:
            _log.warning("WITHOUT TLS: metrics at %s are for this machine alone", self._address)

    async def stop(self) -> None:
        """Ends, after at most a second for requests under way. Safe to repeat."""
        server, self._server = self._server, None
        runner, self._runner = self._runner, None
        if server:
            server.close()
        if runner:
            await runner.cleanup()

    def _connection(self) -> asyncio.Protocol:
        """aiohttp itself lets a connection wait for its first request for ever."""
        assert self._runner
        assert self._runner.server
        handler = self._runner.server()
        asyncio.get_running_loop().call_later(_LONGEST_S, handler.force_close)
        return handler

    async def _metrics(self, request: web.Request) -> web.Response:
        from aiohttp import web
        from prometheus_client.exposition import choose_encoder

        # No more of what is accepted: of a version it believes whatever it is told.
        encode, content_type = choose_encoder(_OPENMETRICS if _OPENMETRICS in request.headers.get("Accept", "") else "")
        body = await self._encoded(content_type, encode)
        return _last(web.Response(body=body, headers={"Content-Type": content_type}))

    async def _encoded(self, content_type: str, encode: Callable[[_Collected], bytes]) -> bytes:
        """The metrics as they are, or were a moment ago: who asks without end must not keep the daemon from work."""
        clock = asyncio.get_running_loop().time
        async with self._making:
            until, body = self._made.get(content_type, (0.0, b""))
            if (began := clock()) >= until:
                body = await asyncio.to_thread(encode, _Collected([*self._state()], self._registry))
                self._made[content_type] = clock() + (clock() - began) / _SHARE, body
        return body

    async def _health(self, _: web.Request) -> web.Response:
        fault = self._healthy()
        return _answer(fault if isinstance(fault, str) else await fault)

    async def _readiness(self, _: web.Request) -> web.Response:
        return _answer(self._ready())


class _Collected:
    """What prometheus-client's encoders ask a registry for."""

    def __init__(self, state: Iterable[Metric], registry: CollectorRegistry) -> None:
        self._state = state
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        yield from self._state
        yield from self._registry.collect()


def split_address(address: str) -> tuple[str, int]:
    """Host (empty: every address) and port of `host:port`, `[host]:port` or `:port`.

    Raises:
        ConfigError: it is none of them.
    """
    host, colon, digits = address.rpartition(":")
    port = whole_number(digits, PORTS)
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or port is None or (":" in host and not bracketed):
        raise ConfigError(f"{address!r} is not an address such as 0.0.0.0:9400, :9400 or [::]:9400")
    return host.removeprefix("[").removesuffix("]"), port


def _answer(fault: str) -> web.Response:
    from aiohttp import web

    return _last(web.Response(status=503 if fault else 200, text=f"{fault or 'ok'}\n"))


def _last(response: web.Response) -> web.Response:
    response.force_close()
    return response
