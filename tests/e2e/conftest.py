from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "hack"), str(Path(__file__).parent)]

from kube_cluster import Cluster  # noqa: E402  found by the line above


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    """The test cluster, which must be up: `./hack/cluster up`."""
    found = Cluster(os.environ.get("TIMESLICE_CLUSTER", "timeslice"))
    if not found.is_up():
        pytest.fail(f"cluster {found.name} is not up: run ./hack/cluster up")
    return found
