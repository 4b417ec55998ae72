import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "hack"))


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    monkeypatch.setenv("TIMESLICE_CLUSTER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"
