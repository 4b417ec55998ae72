from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from fake_node import FakeNode
from fake_orchestrator import FakeOrchestrator
from patience import eventually
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


def connections(node: FakeNode) -> int:
    """How many are open: the server's ends of them carry the socket's path (proc(5): state 03 is connected)."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()]
    return sum(line[5] == "03" and line[-1] == str(node.socket) for line in lines)


def test_a_process_registers_before_its_first_acquire_of_each_group(
    job: OrchestratorClient, fake: FakeOrchestrator, node: FakeNode
) -> None:
    for _ in range(2):
        with job.on_accelerators("t"):
            pass
    with job.on_accelerators(["s", "t"]):
        pass
    assert node.registered == [("job-a", "t", os.getpid()), ("job-a", "s", os.getpid())]


def test_what_the_node_calls_the_process_goes_into_every_acquire(
    job: OrchestratorClient, fake: FakeOrchestrator, node: FakeNode
) -> None:
    for _ in range(2):
        with job.on_accelerators("t"):
            pass
    name = f"node-1/{os.getpid()}/1"
    assert [request.process for method, request in fake.calls if method == "Acquire"] == [name, name]


def test_the_connection_to_the_node_is_closed_when_it_has_served(
    job: OrchestratorClient, fake: FakeOrchestrator, node: FakeNode
) -> None:
    with job.on_accelerators("t"):
        assert connections(node) == 1
        eventually(lambda: connections(node) == 0, within_s=5)
    with job.on_accelerators("s"):
        assert [group for _, group, _ in node.registered] == ["t", "s"]


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
