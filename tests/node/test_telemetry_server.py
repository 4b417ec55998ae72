"""The HTTP of the daemons."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest
from prometheus_client import CollectorRegistry, Counter
from timeslice_api.errors import ConfigError
from timeslice_api.telemetry import TelemetryServer, split_address


@asynccontextmanager
async def serving(server: TelemetryServer) -> AsyncIterator[str]:
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


async def get(url: str, **headers: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


async def test_metrics_come_in_the_format_that_is_asked_for() -> None:
    registry = CollectorRegistry()
    Counter("parks", "Parks.", registry=registry).inc(2)
    async with serving(TelemetryServer("127.0.0.1:0", registry)) as url:
        status, text, kind = await get(f"{url}/metrics")
        assert (status, kind.split(";")[0]) == (200, "text/plain")
        assert "parks_total 2.0" in text
        _, text, kind = await get(f"{url}/metrics", Accept="application/openmetrics-text; version=1.0.0")
        assert kind.startswith("application/openmetrics-text")
        assert text.endswith("# EOF\n")


async def test_a_daemon_that_is_not_ready_says_why_and_lives_all_the_same() -> None:
    reasons = ["not the leader"]
    server = TelemetryServer("127.0.0.1:0", CollectorRegistry(), ready=lambda: reasons[0])
    async with serving(server) as url:
        assert (await get(f"{url}/readyz"))[:2] == (503, "not the leader\n")
        assert (await get(f"{url}/healthz"))[:2] == (200, "ok\n")
        reasons[0] = ""
        assert (await get(f"{url}/readyz"))[:2] == (200, "ok\n")


async def test_an_address_in_use_is_an_error_that_names_it() -> None:
    first = TelemetryServer("127.0.0.1:0", CollectorRegistry())
    async with serving(first):
        second = TelemetryServer(f"127.0.0.1:{first.port}", CollectorRegistry())
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{first.port} for telemetry"):
            await second.start()


@pytest.mark.parametrize(
    ("address", "parts"),
    [("0.0.0.0:9400", ("0.0.0.0", 9400)), (":9400", ("", 9400)), ("[::1]:0", ("::1", 0)), ("node-a:1", ("node-a", 1))],
)
def test_addresses_with_a_port(address: str, parts: tuple[str, int]) -> None:
    assert split_address(address) == parts


@pytest.mark.parametrize("address", ["", "9400", "host:", "host:no", "::1:9400", "host:70000"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        split_address(address)
