from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from dra_kubeletplugin import Plugin
from dra_kubeletplugin.apiserver import ApiServer
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet
from scripted_driver import DRIVER, NODE, ScriptedDriver


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


@pytest.fixture
def kubelet(folder: Path) -> FakeKubelet:
    registry = folder / "registry"
    registry.mkdir()
    return FakeKubelet(registry)


@pytest_asyncio.fixture
async def driver() -> ScriptedDriver:
    return ScriptedDriver()


@pytest.fixture
def new_plugin(folder: Path, kubelet: FakeKubelet, api: ApiServer, driver: ScriptedDriver) -> Callable[..., Plugin]:
    """Makes plugins of the test's node; they share its folders."""

    def make(**options: Any) -> Plugin:
        folders = {"registry_dir": kubelet.registry, "data_dir": folder / "data", "cdi_dir": folder / "cdi"}
        return Plugin(DRIVER, options.pop("driver", driver), NODE, api, **(folders | options))

    return make
