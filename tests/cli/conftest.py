from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from embedded import Platform, started
from patience import eventually


@pytest.fixture(scope="module")
def shared_platform() -> Iterator[Platform]:
    with started("--group", "trainer-group") as platform:
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    """One for all tests of a module; jobs end with their test, and so does what they held and asked for."""
    yield shared_platform
    shared_platform.end_jobs()
    eventually(lambda: not (shared_platform.group()["holders"] or shared_platform.group()["waiters"]), within_s=20)


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose paths are short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)
