from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from cluster_world import Told, World
from dra_kubeletplugin.apiserver import ApiServer
from fake_api_server import FakeApiServer


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as started:
        yield started


@pytest_asyncio.fixture
async def api(server: FakeApiServer) -> AsyncIterator[ApiServer]:
    async with server.connect() as connected:
        yield connected


@pytest.fixture
def told() -> Told:
    return Told()


@pytest_asyncio.fixture
async def world(server: FakeApiServer, api: ApiServer, told: Told) -> AsyncIterator[World]:
    """A cluster that is watched."""
    found = World(server, api, told)
    yield found
    await found.stop()
