from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from network import Network


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A folder whose paths are short enough for sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)


@pytest.fixture
async def network(short_dir: Path) -> AsyncIterator[Network]:
    async with Network(short_dir) as network:
        yield network
