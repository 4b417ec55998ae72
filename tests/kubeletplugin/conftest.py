from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from dra_kubeletplugin.apiserver import ApiServer
from fake_api_server import FakeApiServer


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose paths are short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="kp-") as name:
        yield Path(name)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as started:
        yield started


@pytest_asyncio.fixture
async def api(server: FakeApiServer) -> AsyncIterator[ApiServer]:
    async with server.connect() as connected:
        yield connected
