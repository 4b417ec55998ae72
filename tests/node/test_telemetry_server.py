"""The HTTP of the daemons."""

from __future__ import annotations

import asyncio
import logging
import shutil
import ssl
import threading
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
from certificates import Authority
from prometheus_client import CollectorRegistry, Counter, Metric
from timeslice_api import telemetry
from timeslice_api.errors import ConfigError
from timeslice_api.telemetry import TelemetryServer, split_address
from timeslice_api.tls import TlsFiles


@asynccontextmanager
async def serving(server: TelemetryServer) -> AsyncIterator[str]:
    await server.start()
    yield f"http://127.0.0.1:{server.port}"
    await server.stop()


async def get(url: str, **headers: str) -> tuple[int, str, str]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.text(), answer.headers["Content-Type"]


@asynccontextmanager
async def serving_by_tls(tls: TlsFiles) -> AsyncIterator[str]:
    server = TelemetryServer("0.0.0.0:0", CollectorRegistry(), tls=tls)
    await server.start()
    yield f"https://localhost:{server.port}"
    await server.stop()


async def healthy(url: str, authority: Authority) -> bool:
    """Asks on a connection of its own, as a scraper with that authority. Raises aiohttp.ClientError."""
    trusting = ssl.create_default_context(cafile=authority.file)
    async with aiohttp.ClientSession() as session, session.get(f"{url}/healthz", ssl=trusting) as answer:
        return answer.status == 200 and await answer.text() == "ok\n"


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


class Slow:
    """A collector that takes its time."""

    def __init__(self) -> None:
        self.asked = 0

    def collect(self) -> Iterable[Metric]:
        self.asked += 1
        time.sleep(0.2)
        return ()


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text; version=1.0.0"])
async def test_who_asks_for_metrics_without_end_takes_a_small_share_of_the_daemons_time(accept: str) -> None:
    registry, slow = CollectorRegistry(), Slow()
    registry.register(slow)
    async with serving(TelemetryServer("127.0.0.1:0", registry)) as url:
        before = slow.asked  # when it was registered
        for _ in range(20):
            assert (await get(f"{url}/metrics", Accept=accept))[0] == 200
        assert slow.asked == before + 1
        while slow.asked == before + 1:
            await asyncio.sleep(0.1)
            await get(f"{url}/metrics", Accept=accept)
        assert slow.asked == before + 2


class Held:
    """A collector that ends when it may."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.may.set()
        self.thread = 0

    def collect(self) -> Iterable[Metric]:
        self.thread = threading.get_ident()
        assert self.may.wait(5)
        return ()


async def test_metrics_are_made_beside_the_daemons_work_of_what_it_told_within_it() -> None:
    registry, counted, told = CollectorRegistry(), Held(), Held()
    registry.register(counted)
    async with serving(TelemetryServer("127.0.0.1:0", registry, state=told.collect)) as url:
        counted.may.clear()
        asked = [asyncio.create_task(get(f"{url}/metrics")) for _ in range(3)]
        assert (await get(f"{url}/healthz"))[0] == 200
        counted.may.set()
        assert [status for status, _, _ in await asyncio.gather(*asked)] == [200] * 3
    assert told.thread == threading.get_ident() != counted.thread


@pytest.mark.parametrize("version", ["x", "1.x", "9" * 3000, "", "-1"])
async def test_a_format_of_no_version_is_answered_all_the_same(version: str) -> None:
    async with serving(TelemetryServer("127.0.0.1:0", CollectorRegistry())) as url:
        for kind in ("text/plain", "application/openmetrics-text"):
            assert (await get(f"{url}/metrics", Accept=f"{kind}; version={version}; escaping={version}"))[0] == 200


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


@pytest.mark.parametrize("address", ["", "9400", "host:", "host:no", "::1:9400", "host:70000", "host:²"])
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="is not an address"):
        split_address(address)


@pytest.mark.parametrize("address", ["0.0.0.0:0", ":0", "[::]:0", "10.0.0.1:9400"])
async def test_nothing_is_told_without_tls_where_others_reach_it(address: str) -> None:
    with pytest.raises(ConfigError, match=r"can be reached from other machines, so it needs TLS .*--tls-cert"):
        await TelemetryServer(address, CollectorRegistry(), tls=TlsFiles(ca="ca.pem")).start()


async def test_on_this_machine_alone_it_may_be_plain_and_says_so_loudly(caplog: pytest.LogCaptureFixture) -> None:
    async with serving(TelemetryServer("127.0.0.1:0", CollectorRegistry())):
        warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in warned if line.startswith("WITHOUT TLS: metrics at 127.0.0.1:0")]


async def test_a_scraper_with_the_authority_is_served_by_tls_and_shows_no_certificate_itself(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ours")
    files = replace(
        authority.certificate("localhost"), ca=authority.file
    )  # as where clients' certificates are asked for
    async with serving_by_tls(files) as url:
        assert await healthy(url, authority)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await healthy(url, Authority(tmp_path / "another"))
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await healthy(url.replace("localhost", "127.0.0.1"), authority)  # of which its certificate says nothing
        with pytest.raises(aiohttp.ClientError):
            await get(f"{url.replace('https', 'http')}/metrics")


async def test_a_new_certificate_is_shown_without_a_restart_and_a_bad_one_is_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    files, newer = old.certificate("localhost"), new.certificate("localhost")
    async with serving_by_tls(files) as url:
        assert await healthy(url, old)
        shutil.copy(newer.cert, files.cert)  # which does not fit the old key
        assert await healthy(url, old)
        assert "the former certificate stays in force" in caplog.text
        shutil.copy(newer.key, files.key)
        assert await healthy(url, new)
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await healthy(url, old)


async def test_a_certificate_that_cannot_be_used_is_an_error_at_the_start(tmp_path: Path) -> None:
    files = Authority(tmp_path).certificate("localhost")
    for bad, message in (
        (replace(files, cert=str(tmp_path / "none.pem")), "none.pem"),
        (replace(files, key=""), "give both, --tls-cert and --tls-key"),
    ):
        with pytest.raises(ConfigError, match=message):
            await TelemetryServer("127.0.0.1:0", CollectorRegistry(), tls=bad).start()


async def test_connections_that_are_silent_or_slow_keep_nobody_out_and_are_let_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_LONGEST_S", 1.0)
    monkeypatch.setattr(telemetry, "_HANDSHAKE_S", 0.5)
    authority = Authority(tmp_path)
    trusting = ssl.create_default_context(cafile=authority.file)
    async with serving_by_tls(authority.certificate("localhost")) as url:
        port = int(url.rpartition(":")[2])
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        slow = await asyncio.open_connection("localhost", port, ssl=trusting)
        slow[1].write(b"GET /metrics HTTP/1.1\r\nX-Slow: ")  # and nothing more
        assert await healthy(url, authority)
        async with asyncio.timeout(5):
            for reader, writer in [*silent, slow]:
                assert await reader.read() == b""
                writer.close()
        assert await healthy(url, authority)


async def test_a_connection_is_for_one_request() -> None:
    async with serving(TelemetryServer("127.0.0.1:0", CollectorRegistry())) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: me\r\n\r\n" * 2)
        async with asyncio.timeout(5):
            assert (await reader.read()).count(b"HTTP/1.1 200") == 1
        writer.close()
