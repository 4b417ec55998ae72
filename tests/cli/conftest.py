from __future__ import annotations

from collections.abc import Iterator

import pytest
from embedded import Platform, started


@pytest.fixture(scope="module")
def shared_platform() -> Iterator[Platform]:
    with started("--group", "trainer-group") as platform:
        yield platform


@pytest.fixture
def platform(shared_platform: Platform) -> Iterator[Platform]:
    """One for all tests of a module; jobs end with their test."""
    yield shared_platform
    shared_platform.end_jobs()
