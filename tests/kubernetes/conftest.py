from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from dra_kubeletplugin.apiserver import ApiServer
from fake_api_server import FakeApiServer

sys.path.insert(0, str(Path(__file__).parent))  # its modules are shared by the tests here


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as started:
        yield started


@pytest_asyncio.fixture
async def api(server: FakeApiServer) -> AsyncIterator[ApiServer]:
    async with server.connect(timeout_s=2.0) as connected:
        yield connected


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path
