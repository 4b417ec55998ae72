"""Two orchestrator processes on one API server: what clients see when the leader dies, freezes, or is stopped."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from certificates import Authority
from fake_api_server import FakeApiServer
from offices import make_groups, status_of
from pods import NAME, FaithfulNode, Pod, Service, free_port
from running_orchestrator import open_channel, stub_of
from scripted_node import PARKED, RUNNING, part
from timeslice import OrchestratorClient
from timeslice_api import status
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb

pytestmark = [pytest.mark.processes, pytest.mark.timeout(240)]

SHORT_LEASE_S = 6.0  # a machine that is busy must not lose it for that alone
LONG_LEASE_S = 30.0


class Cluster:
    """Two pods behind a service, one node with one device, in group g1."""

    def __init__(
        self, server: FakeApiServer, service: Service, *, pods: tuple[Pod, Pod], node: FaithfulNode, authority: str
    ) -> None:
        self.server = server
        self._authority = authority
        self.service = service
        self.pods = pods
        self.node = node

    def client(self, job_id: str) -> OrchestratorClient:
        return OrchestratorClient(self.service.address, job_id=job_id, group_id="g1", tls_ca=self._authority)

    async def waits(self, jobs: int) -> None:
        """Until so many requests are in the group's records."""
        async with asyncio.timeout(60):
            while len(status_of(self.server, "g1").get("records", {}).get("requests", {})) != jobs:
                await asyncio.sleep(0.02)


@pytest.fixture
def only_ready() -> bool:
    """Whether the service's name stands for ready pods alone; a test may say otherwise."""
    return False


@pytest.fixture
def lease_s() -> float:
    """How long a silent leader is waited for; a test may say otherwise."""
    return LONG_LEASE_S


@pytest_asyncio.fixture
async def cluster(server: FakeApiServer, tmp_path: Path, only_ready: bool, lease_s: float) -> AsyncIterator[Cluster]:
    await make_groups(server, "g1")
    kubeconfig = server.kubeconfig(tmp_path / "kubeconfig")
    port = free_port("127.0.0.11")
    authority = Authority(tmp_path / "authority")
    tls = authority.certificate(NAME)
    pods = tuple(Pod(f"pod-{number}", tmp_path, kubeconfig, port=port, lease_s=lease_s, tls=tls) for number in (1, 2))
    first, second = pods
    try:
        for pod in pods:
            await pod.start()
        async with (
            Service(*pods, only_ready=only_ready) as service,
            FaithfulNode(service, "n1", {"g1": ("d1",)}) as node,
        ):
            await service.leader()
            for pod in pods:
                await pod.up()
            yield Cluster(server, service, pods=(first, second), node=node, authority=authority.file)
    finally:
        for pod in pods:
            await pod.kill()
            print(f"--- {pod.name}\n{pod.log}")


async def holder_and_waiter(cluster: Cluster) -> tuple[OrchestratorClient, OrchestratorClient, asyncio.Task[None]]:
    """A job that holds the group, and another one that waits for it in a thread."""
    holder, waiter = cluster.client("job-a"), cluster.client("job-b")
    await asyncio.to_thread(holder.acquire, timeout=30)
    waiting = asyncio.create_task(asyncio.to_thread(_take_a_turn, waiter))
    await cluster.waits(1)
    return holder, waiter, waiting


def _take_a_turn(client: OrchestratorClient) -> None:
    client.acquire(timeout=120)
    client.yield_()


@pytest.mark.parametrize("lease_s", [SHORT_LEASE_S])
@pytest.mark.parametrize("only_ready", [True, False], ids=["a name of ready pods", "a name of all pods"])
async def test_a_leader_that_is_killed_is_replaced_and_neither_holder_nor_waiter_notices(cluster: Cluster) -> None:
    leader = await cluster.service.leader()
    follower = next(pod for pod in cluster.pods if pod is not leader)
    holder, waiter, waiting = await holder_and_waiter(cluster)
    token = status_of(cluster.server, "g1")["records"]["token"]
    with pytest.raises(ConnectionRefusedError):  # who does not lead cannot be reached
        await asyncio.open_connection(*follower.address.split(":"))
    leader.signal(signal.SIGKILL)
    assert await cluster.service.leader(other_than=leader) is follower
    assert not waiting.done()
    await asyncio.to_thread(holder.yield_)
    await asyncio.wait_for(waiting, 60)
    assert status_of(cluster.server, "g1")["records"]["token"] > token
    assert cluster.node.welcomed_by == [leader.name, follower.name]
    for client in (holder, waiter):
        await asyncio.to_thread(client.close)


@pytest.mark.parametrize("lease_s", [SHORT_LEASE_S])
async def test_a_hand_off_that_was_half_done_when_the_leader_was_killed_is_finished_by_its_successor(
    cluster: Cluster,
) -> None:
    leader, node = await cluster.service.leader(), cluster.node
    await node.joins(part("job-a", "g1", "d1", state=RUNNING))
    await node.joins(part("job-b", "g1", "d1", state=PARKED))
    holder, waiter, waiting = await holder_and_waiter(cluster)
    node.obey(obeys=False)
    await asyncio.to_thread(holder.yield_)
    async with asyncio.timeout(10):
        command = await node.commands.get()
    leaving = node.parts["job-a", "g1"]
    leaving.state, leaving.resident = PARKED, False  # so far it got, and nobody heard of it
    leader.signal(signal.SIGKILL)
    node.obey(obeys=True)
    await asyncio.wait_for(waiting, 60)
    again = await node.commands.get()
    assert again.epoch > command.epoch
    assert [(target.member.job_id, target.state) for target in again.targets] == [("job-b", RUNNING)]
    assert [node.parts[job, "g1"].state for job in ("job-a", "job-b")] == [PARKED, RUNNING]
    for client in (holder, waiter):
        await asyncio.to_thread(client.close)


@pytest.mark.parametrize("lease_s", [SHORT_LEASE_S])
async def test_a_leader_that_froze_beyond_its_time_says_nothing_when_it_wakes_and_ends(cluster: Cluster) -> None:
    leader = await cluster.service.leader()
    holder, waiter, waiting = await holder_and_waiter(cluster)
    channel = open_channel(leader.door)
    old = stub_of(channel)
    renewal = pb.KeepAliveRequest(job_id="job-a", lease_ids=["lease-of-nobody"])
    await old.KeepAlive(renewal, timeout=20)  # the connection is there
    leader.signal(signal.SIGSTOP)
    successor = await cluster.service.leader(other_than=leader)
    written = status_of(cluster.server, "g1")["records"]["epoch"]
    request = pb.AcquireRequest(request_id="r9", job_id="job-z", group_id="g1")
    asked = [
        asyncio.ensure_future(old.KeepAlive(renewal, timeout=30)),
        asyncio.ensure_future(old.Acquire(request, timeout=30)),
        asyncio.ensure_future(old.GetGroup(pb.GetGroupRequest(group_id="g1"), timeout=30)),
    ]
    await asyncio.sleep(0.2)  # they are in the frozen process's sockets
    leader.signal(signal.SIGCONT)
    answers = await asyncio.gather(*asked, return_exceptions=True)
    # an answer would be an error of this test; each of these has the client ask again, elsewhere
    assert all(isinstance(answer, grpc.aio.AioRpcError) for answer in answers), answers
    assert all(status.from_rpc(answer).retryable for answer in answers if isinstance(answer, grpc.RpcError)), answers
    assert await leader.ended() != 0
    assert "error: the lead is lost" in leader.log
    await asyncio.to_thread(holder.yield_)
    await asyncio.wait_for(waiting, 60)
    records = status_of(cluster.server, "g1")["records"]
    assert records["epoch"] == written
    assert "r9" not in records["requests"]
    assert cluster.node.welcomed_by[-1] == successor.name
    await channel.close()
    for client in (holder, waiter):
        await asyncio.to_thread(client.close)


async def test_a_clean_stop_hands_the_lead_over_at_once(cluster: Cluster) -> None:
    leader = await cluster.service.leader()
    holder, waiter, waiting = await holder_and_waiter(cluster)
    leader.signal(signal.SIGTERM)
    stopped_at = time.monotonic()
    await cluster.service.leader(other_than=leader)
    assert time.monotonic() - stopped_at < LONG_LEASE_S / 2  # nobody waited for the lease to end
    assert await leader.ended() == 0
    await asyncio.to_thread(holder.yield_)
    await asyncio.wait_for(waiting, 60)
    for client in (holder, waiter):
        await asyncio.to_thread(client.close)


async def test_figures_are_told_by_the_leader_and_the_follower_says_that_it_is_none(cluster: Cluster) -> None:
    leader = await cluster.service.leader()
    follower = next(pod for pod in cluster.pods if pod is not leader)
    holder, waiter, waiting = await holder_and_waiter(cluster)
    told = await leader.metrics()
    assert "timeslice_leader 1.0" in told
    assert 'timeslice_waiting_requests{group="g1"} 1.0' in told
    assert 'timeslice_grants_total{group="g1"} 1.0' in told
    assert 'timeslice_wait_seconds_count{group="g1"} 1.0' in told
    assert "timeslice_store_write_seconds_count" in told
    assert "job-a" not in told
    assert "timeslice_leader 0.0" in await follower.metrics()
    await asyncio.to_thread(holder.yield_)
    await waiting
    async with asyncio.timeout(5):
        while 'timeslice_hold_seconds_count{group="g1"} 2.0' not in await leader.metrics():
            await asyncio.sleep(0.05)  # those of a moment ago may be told again
    for client in (holder, waiter):
        await asyncio.to_thread(client.close)
