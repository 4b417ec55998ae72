from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from fake_node import FakeNode
from fake_orchestrator import FakeOrchestrator
from timeslice import OrchestratorClient
from timeslice_api.errors import AcquireTimeout, GroupNotFound, InvalidRequest


@pytest.fixture
def node(short_dir: Path) -> Iterator[FakeNode]:
    made = FakeNode(short_dir / "n.sock")
    made.start()
    yield made
    made.stop()


@pytest.fixture
def job(fake: FakeOrchestrator, node: FakeNode) -> Iterator[OrchestratorClient]:
    with OrchestratorClient(fake.address, job_id="job-a", node_socket=str(node.socket)) as client:
        yield client


def test_a_process_registers_before_its_first_acquire_of_each_group(
    job: OrchestratorClient, fake: FakeOrchestrator, node: FakeNode
) -> None:
    for _ in range(2):
        with job.on_accelerators("t"):
            pass
    with job.on_accelerators(["s", "t"]):
        pass
    assert node.registered == [("job-a", "t", os.getpid()), ("job-a", "s", os.getpid())]


def test_a_node_that_does_not_answer_yet_is_asked_again(
    job: OrchestratorClient, fake: FakeOrchestrator, node: FakeNode
) -> None:
    node.faults.append(grpc.StatusCode.UNAVAILABLE)
    with job.on_accelerators("g"):
        assert node.registered == [("job-a", "g", os.getpid())]


def test_without_its_node_a_process_acquires_nothing_since_it_could_not_be_parked(
    fake: FakeOrchestrator, short_dir: Path
) -> None:
    socket = str(short_dir / "none.sock")
    with (
        OrchestratorClient(fake.address, job_id="job-a", node_socket=socket) as client,
        pytest.raises(AcquireTimeout, match="no answer"),
    ):
        client.acquire("g", timeout=0.3)
    assert fake.calls == []


def test_a_registration_that_the_node_refuses_ends_the_acquire(
    job: OrchestratorClient, fake: FakeOrchestrator, node: FakeNode
) -> None:
    node.faults.append(GroupNotFound("no group 'x' on this node; known: g"))
    with pytest.raises(GroupNotFound, match="known: g"):
        job.acquire("x")
    assert fake.calls == []


def test_a_node_socket_over_107_bytes_is_refused_at_once(fake: FakeOrchestrator) -> None:
    with pytest.raises(InvalidRequest, match="107"):
        OrchestratorClient(fake.address, job_id="job-a", node_socket="/" + "x" * 107)
