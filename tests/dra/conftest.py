from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pynvml
import pytest
import pytest_asyncio
from fake_api_server import FakeApiServer
from gpu_emulator.emulator import Emulator
from plugin_world import PluginWorld


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose paths are short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)


@pytest.fixture
def options() -> dict[str, Any]:
    """Of the emulator; a parameter may say otherwise."""
    return {"gpus": 2, "memory": 64 << 20}


@pytest.fixture
def emulator(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The emulated machine, which this process and its children see too."""
    for name in [name for name in os.environ if name.startswith("TIMESLICE_")]:
        monkeypatch.delenv(name)
    with Emulator(**options) as started:
        for name, value in started.variables.items():
            monkeypatch.setenv(name, value)
        yield started
    _forget_connections()


@pytest_asyncio.fixture
async def api_server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as server:
        yield server


@pytest_asyncio.fixture
async def world(emulator: Emulator, api_server: FakeApiServer, folder: Path) -> AsyncIterator[PluginWorld]:
    """A node with emulated GPUs in a cluster; its plugin is not started yet."""
    made = PluginWorld(emulator, api_server, folder)
    await made.set_up()
    yield made
    await made.stop()


def _forget_connections() -> None:
    """The library keeps its connections to a daemon that has ended; each fails once more."""
    for _ in range(16):
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            continue
        pynvml.nvmlShutdown()
