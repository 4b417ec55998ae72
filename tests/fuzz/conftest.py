from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """A directory whose paths are short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)
