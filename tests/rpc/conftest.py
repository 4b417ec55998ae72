from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import grpc.aio
import pytest
from running_orchestrator import Running
from timeslice_orchestrator.core.model import Settings


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder whose paths are short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)


@pytest.fixture
def settings() -> Settings:
    """Time limits; a test that needs others parametrizes this."""
    return Settings()


@pytest.fixture
async def running(short_dir: Path, settings: Settings) -> AsyncIterator[Running]:
    """A started orchestrator on a unix socket, with the channel of one client."""
    running = Running(short_dir, settings)
    await running.start()
    yield running
    await running.close()


@pytest.fixture
def channel(running: Running) -> grpc.aio.Channel:
    return running.channel
