from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_orchestrator import FakeOrchestrator
from timeslice import AsyncOrchestratorClient, OrchestratorClient


@pytest.fixture
def short_dir() -> Iterator[Path]:
    """A directory whose paths are short enough for unix sockets."""
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        yield Path(name)


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ORCHESTRATOR", "JOB_ID", "GROUP_ID", "MODE", "NODE_SOCKET", "OBSERVE_FILE"):
        monkeypatch.delenv(f"TIMESLICE_{name}", raising=False)


@pytest.fixture
def fake(short_dir: Path) -> Iterator[FakeOrchestrator]:
    orchestrator = FakeOrchestrator(short_dir / "o.sock", ttl_s=1.5)
    orchestrator.start()
    yield orchestrator
    orchestrator.close()


@pytest.fixture
def client(fake: FakeOrchestrator) -> Iterator[OrchestratorClient]:
    with OrchestratorClient(fake.address, job_id="job-a", group_id="g") as made:
        yield made


@pytest.fixture
def other(fake: FakeOrchestrator) -> Iterator[OrchestratorClient]:
    """Another job's client."""
    with OrchestratorClient(fake.address, job_id="job-b", group_id="g") as made:
        yield made


@pytest.fixture
def async_client(fake: FakeOrchestrator) -> Iterator[AsyncOrchestratorClient]:
    made = AsyncOrchestratorClient(fake.address, job_id="job-a", group_id="g")
    yield made
    made._session.end(time.monotonic() + 1)
