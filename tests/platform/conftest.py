from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, started_cluster


@pytest.fixture(scope="module")
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """With as many machines as the module's MACHINES says."""
    with tempfile.TemporaryDirectory(prefix="ts-") as folder:
        names = [f"node-{number}" for number in range(request.module.MACHINES)]
        with started_cluster(Path(folder), *names) as cluster:
            yield cluster


@pytest.fixture
def cluster(shared_cluster: Cluster) -> Iterator[Cluster]:
    """One for all tests of a module; jobs and faults end with their test."""
    yield shared_cluster
    shared_cluster.mend()
