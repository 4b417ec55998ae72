"""What an attacker can make the orchestrator take: too much in one message, in metadata, or in connections."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack
from pathlib import Path

import grpc.aio
import pytest
from certificates import Authority
from embedded import TIMESLICE, Running, environment
from running_orchestrator import stub_of
from timeslice_api.errors import InvalidRequest
from timeslice_api.limits import raise_open_files
from timeslice_api.status import from_rpc
from timeslice_api.tls import TlsFiles, channel_credentials
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.server import Orchestrator

ACQUIRE = "/timeslice.v1alpha1.Orchestrator/Acquire"
LONE = ("grpc.use_local_subchannel_pool", 1)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[str, TlsFiles]]:
    """Where an orchestrator listens with TLS, and what clients of it need."""
    authority = Authority(tmp_path)
    config = OrchestratorConfig(tmp_path / "state", ("127.0.0.1:0",), tls=authority.certificate("127.0.0.1"))
    async with Orchestrator(config) as running:
        yield running.addresses[0], TlsFiles(ca=authority.file)


def dialled(served: tuple[str, TlsFiles], *options: tuple[str, int]) -> grpc.aio.Channel:
    credentials = channel_credentials(*served)
    assert credentials
    return grpc.aio.secure_channel(served[0], credentials, options=[LONE, *options])


async def answers(served: tuple[str, TlsFiles]) -> float:
    """How long a caller who comes now waits for its answer (seconds)."""
    began = time.monotonic()
    async with dialled(served) as channel:
        await stub_of(channel).ListGroups(pb.ListGroupsRequest(), timeout=8)
    return time.monotonic() - began


@pytest.mark.parametrize(
    "size", [64 << 20, pytest.param(1 << 30, marks=[pytest.mark.long, pytest.mark.timeout(120)])], ids=["64M", "1G"]
)
async def test_a_message_that_is_too_large_is_refused_before_it_is_taken(
    served: tuple[str, TlsFiles], size: int
) -> None:
    async with dialled(served, ("grpc.max_send_message_length", -1)) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await channel.unary_unary(ACQUIRE)(bytes(size), timeout=60)
    error = from_rpc(caught.value)
    assert isinstance(error, InvalidRequest)  # which nobody repeats
    assert "larger than max" in error.message
    await answers(served)


async def test_metadata_that_is_too_large_is_refused(served: tuple[str, TlsFiles]) -> None:
    for size in (20 << 10, 1 << 20):
        async with dialled(served) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await channel.unary_unary(ACQUIRE)(b"", timeout=8, metadata=(("x-much", "x" * size),))
        assert isinstance(from_rpc(caught.value), InvalidRequest)
        await answers(served)


# The same program, which lets go of silent connections after a second in place of ten.
HASTY = """
import sys
from timeslice_api import limits
hasty = dict(limits.SERVER_LIMITS)
assert hasty["grpc.server_handshake_timeout_ms"] == 10_000
limits.SERVER_LIMITS = tuple((hasty | {"grpc.server_handshake_timeout_ms": 1_000}).items())
from timeslice.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
FEW = [sys.executable, "-c", HASTY]
MANY = pytest.param(10_000, [str(TIMESLICE)], marks=pytest.mark.long)


@pytest.mark.processes
@pytest.mark.timeout(180)
@pytest.mark.parametrize(("count", "program"), [(500, FEW), MANY], ids=["500", "10000"])
async def test_connections_that_say_nothing_keep_nobody_out_and_are_let_go(
    tmp_path: Path, count: int, program: list[str]
) -> None:
    if raise_open_files() < count + 500:
        pytest.skip(f"this process may not have {count} open files")
    authority = Authority(tmp_path)
    server = authority.certificate("127.0.0.1")
    command = [*program, "orchestrator", "--listen", "127.0.0.1:0", "--state-dir", str(tmp_path / "s")]
    running = Running([*command, "--tls-cert", server.cert, "--tls-key", server.key], environment({}))
    try:
        address = running.says("export TIMESLICE_ORCHESTRATOR=").partition("=")[2]
        served = (address, TlsFiles(ca=authority.file))
        host, _, port = address.rpartition(":")
        with ExitStack() as stack:
            silent = [
                stack.enter_context(socket.create_connection((host, int(port)), timeout=20)) for _ in range(count)
            ]
            assert await answers(served) < 5
            async with asyncio.timeout(60):
                while not all(map(_is_closed, silent)):
                    await asyncio.sleep(0.5)
                    assert await answers(served) < 5
    finally:
        running.stop()


def _is_closed(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        while more := connection.recv(4096):
            assert more
        return True
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True
