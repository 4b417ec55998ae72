from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gpu_emulator.emulator import Emulator
from gpu_emulator.puppet import Puppet, start_job
from node_world import World


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose paths are short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("TIMESLICE_", "NCCL_", "TORCH_", "PYTORCH_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def options() -> dict[str, Any]:
    """Of the emulator; a test module or a parameter may say otherwise."""
    return {"memory": 64 << 20}


@pytest.fixture
def emulator(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """The emulated machine, which this process and its children see too."""
    with Emulator(**options) as started:
        for name, value in started.variables.items():
            monkeypatch.setenv(name, value)
        yield started


@pytest.fixture
def jobs(emulator: Emulator) -> Iterator[Callable[..., Puppet]]:
    """Starts processes with memory on the device: `jobs(size, ..., name=...)`; they end with the test."""
    with ExitStack() as stack:
        yield lambda *sizes, **options: stack.enter_context(start_job(emulator, *sizes, **options))


@pytest_asyncio.fixture
async def world(emulator: Emulator, folder: Path) -> AsyncIterator[World]:
    """A machine with devices; its node is not started yet."""
    made = World(emulator, folder)
    yield made
    await made.stop()
