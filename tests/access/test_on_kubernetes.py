"""On Kubernetes, over TCP and from the attacker's side: pods and agents with tokens of service accounts."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import cluster_objects as objects
import grpc
import grpc.aio
import pytest
import pytest_asyncio
from certificates import Authority
from dra_kubeletplugin.apiserver import CLAIMS, PODS
from fake_accounts import account_name
from fake_api_server import FakeApiServer
from network import bearer
from running_orchestrator import stub_of
from scripted_node import ScriptedNode
from timeslice_api import status
from timeslice_api.errors import Forbidden, NotHolder, Unauthenticated, Unavailable
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.config import KubernetesConfig
from timeslice_orchestrator.kubernetes import permissions
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.orchestrator import KubernetesOrchestrator

NODE_ACCOUNT = "timeslice-node"
Metadata = tuple[tuple[str, str], ...]


class Cluster:
    """Group `g` for everybody and `closed` for `team` alone; job-a of namespace team has a GPU in `g`."""

    def __init__(self, server: FakeApiServer, channel: grpc.aio.Channel, address: str) -> None:
        self.server = server
        self.address = address
        self.channel = channel
        self.stub = stub_of(channel)

    async def pod(self, name: str, *, job: str, namespace: str = "team", group: str = "g") -> Metadata:
        """A pod with a claim that has been allocated, and the token that its node makes for it."""
        made = await self.server.put(PODS, objects.pod(name, f"{name}-claim", namespace=namespace, node="n1"))
        ref = {"resource": "pods", "name": name, "uid": made["metadata"]["uid"]}
        raw = objects.claim(f"{name}-claim", group, job=job, namespace=namespace, on=[("n1", 0)])
        raw["status"]["reservedFor"] = [ref]
        await self.server.put(CLAIMS, raw)
        return bearer(self.server.accounts.issue(namespace, "default", pod=made))

    async def agent(self, node: str, account: str = NODE_ACCOUNT) -> Metadata:
        """The pod of the DaemonSet on a node."""
        raw = {"metadata": {"name": f"agent-{node}", "namespace": "timeslice"}, "spec": {"nodeName": node}}
        return bearer(self.server.accounts.issue("timeslice", account, pod=await self.server.put(PODS, raw)))

    async def call(self, call: Awaitable[Any]) -> Any:
        try:
            async with asyncio.timeout(10):
                return await call
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc(error) from error

    async def acquire(self, who: Metadata, job: str, group: str = "g", *, wait_s: float = 2.0) -> Any:
        request = pb.AcquireRequest(request_id=f"r-{job}", job_id=job, group_id=group, wait_s=wait_s, holder="a test")
        return await self.call(self.stub.Acquire(request, metadata=who))


@pytest_asyncio.fixture
async def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    monkeypatch.setattr(permissions, "_NEWS_S", 0.5)
    async with FakeApiServer() as server:
        await server.put(GROUPS, objects.group("g"))
        await server.put(GROUPS, objects.group("closed", namespaces=["team"]))
        authority = Authority(tmp_path / "certificates")
        config = KubernetesConfig(
            namespace="timeslice",
            listen=("0.0.0.0:0",),
            identity="pod-1",
            node_account=account_name("timeslice", NODE_ACCOUNT),
            kubeconfig=str(server.kubeconfig(tmp_path / "kubeconfig")),
            tls=authority.certificate("127.0.0.1"),
        )
        orchestrator = KubernetesOrchestrator(config)
        await orchestrator.start()
        credentials = grpc.ssl_channel_credentials(Path(authority.file).read_bytes())
        address = orchestrator.addresses[0].replace("0.0.0.0", "127.0.0.1")
        channel = grpc.aio.secure_channel(address, credentials)
        found = Cluster(server, channel, address)
        node = ScriptedNode(channel, "n1", {"g": ("GPU-0",), "closed": ("GPU-1",)}, metadata=await found.agent("n1"))
        await node.connect()
        yield found
        await node.cut()
        await channel.close()
        await orchestrator.stop()


async def test_a_pod_takes_turns_for_the_job_of_its_claim(cluster: Cluster) -> None:
    who = await cluster.pod("a", job="job-a")
    lease = (await cluster.acquire(who, "job-a")).lease
    await cluster.call(
        cluster.stub.KeepAlive(pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id]), metadata=who)
    )
    await cluster.call(cluster.stub.Yield(pb.YieldRequest(job_id="job-a", lease_id=lease.lease_id), metadata=who))


async def test_a_pod_whose_claim_is_not_seen_yet_is_waited_for(cluster: Cluster) -> None:
    permissions._NEWS_S = 5.0  # the fixture puts it back
    made = await cluster.server.put(PODS, objects.pod("late", "late-claim", node="n1"))
    who = bearer(cluster.server.accounts.issue("team", "default", pod=made))
    asking = asyncio.create_task(cluster.acquire(who, "job-a"))
    await asyncio.sleep(0.3)
    raw = objects.claim("late-claim", "g", job="job-a", on=[("n1", 0)])
    raw["status"]["reservedFor"] = [{"resource": "pods", "name": "late", "uid": made["metadata"]["uid"]}]
    await cluster.server.put(CLAIMS, raw)
    assert (await asking).lease.lease_id


@pytest.mark.parametrize("method", ["Acquire", "Yield", "KeepAlive", "Withdraw"])
async def test_a_pod_may_nothing_under_a_neighbours_job_id(cluster: Cluster, method: str) -> None:
    owner, neighbour = await cluster.pod("a", job="job-a"), await cluster.pod("b", job="job-b")
    lease = (await cluster.acquire(owner, "job-a")).lease
    request = {
        "Acquire": pb.AcquireRequest(request_id="r", job_id="job-a", group_id="g"),
        "Yield": pb.YieldRequest(job_id="job-a", lease_id=lease.lease_id),
        "KeepAlive": pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id]),
        "Withdraw": pb.WithdrawRequest(job_id="job-a", request_id="r-job-a"),
    }[method]
    with pytest.raises(Forbidden, match=r"pod team/b has claims of job job-b, so it may not .* for job job-a"):
        await cluster.call(getattr(cluster.stub, method)(request, metadata=neighbour))


async def test_a_pod_without_a_claim_may_nothing_for_any_job(cluster: Cluster) -> None:
    made = await cluster.server.put(PODS, objects.pod("bare", namespace="other"))
    who = bearer(cluster.server.accounts.issue("other", "default", pod=made))
    with pytest.raises(Forbidden, match="pod other/bare has no claim of a job"):
        await cluster.acquire(who, "job-a")
    seen = await cluster.call(cluster.stub.ListGroups(pb.ListGroupsRequest(), metadata=who))
    assert [group.group_id for group in seen.groups] == ["g"], "as every pod of its namespace"


async def test_a_claim_of_another_namespace_makes_a_pod_of_no_job(cluster: Cluster) -> None:
    made = await cluster.server.put(PODS, objects.pod("bare", namespace="team"))
    raw = objects.claim("gift", "g", job="job-x", namespace="other", on=[("n1", 0)])
    owner = {"kind": "Pod", "name": "bare", "uid": made["metadata"]["uid"]}  # anybody may write this
    await cluster.server.put(CLAIMS, raw | {"metadata": raw["metadata"] | {"ownerReferences": [owner]}})
    who = bearer(cluster.server.accounts.issue("team", "default", pod=made))
    with pytest.raises(Forbidden, match="pod team/bare has no claim of a job"):
        await cluster.acquire(who, "job-x")


async def test_a_pod_without_a_gpu_drives_the_job_of_its_label_if_that_has_gpus_in_its_namespace(
    cluster: Cluster,
) -> None:
    """A label is as good as a claim of one's own: whoever may write the one in a namespace may write the other."""

    async def driver(namespace: str) -> Metadata:
        made = await cluster.server.put(PODS, objects.pod("driver", namespace=namespace, job="job-a"))
        return bearer(cluster.server.accounts.issue(namespace, "default", pod=made))

    await cluster.pod("a", job="job-a")
    assert (await cluster.acquire(await driver("team"), "job-a")).lease.lease_id
    with pytest.raises(Forbidden, match="pod other/driver has no claim of a job"):
        await cluster.acquire(await driver("other"), "job-a")


async def test_a_claim_that_is_not_allocated_makes_nobody_a_job(cluster: Cluster) -> None:
    made = await cluster.server.put(PODS, objects.pod("eve", "wish", namespace="other"))
    raw = objects.claim("wish", "g", job="job-a", namespace="other")
    owner = {"kind": "Pod", "name": "eve", "uid": made["metadata"]["uid"]}  # anybody may write this
    await cluster.server.put(CLAIMS, raw | {"metadata": raw["metadata"] | {"ownerReferences": [owner]}})
    who = bearer(cluster.server.accounts.issue("other", "default", pod=made))
    with pytest.raises(Forbidden, match="has no claim of a job"):
        await cluster.acquire(who, "job-a")


async def test_a_group_is_closed_to_namespaces_that_it_does_not_admit(cluster: Cluster) -> None:
    who = await cluster.pod("o", job="job-o", namespace="other")
    with pytest.raises(Forbidden, match="namespace other is not admitted by group closed"):
        await cluster.acquire(who, "job-o", "closed")
    with pytest.raises(Forbidden, match="is not admitted"):
        await cluster.call(cluster.stub.GetGroup(pb.GetGroupRequest(group_id="closed"), metadata=who))
    seen = await cluster.call(cluster.stub.ListGroups(pb.ListGroupsRequest(), metadata=who))
    assert [group.group_id for group in seen.groups] == ["g"]
    with pytest.raises(Unavailable, match="is not known yet"):
        await cluster.acquire(who, "job-o", "none")


async def test_another_namespace_cannot_take_over_a_jobs_name(cluster: Cluster) -> None:
    """Labels are their writers' own word; who has the name first in a group keeps it."""
    owner = await cluster.pod("a", job="job-a")
    await cluster.acquire(owner, "job-a")
    await asyncio.sleep(1.1)  # the API server writes times in whole seconds
    impostor = await cluster.pod("z", job="job-a", namespace="other")
    with pytest.raises(Forbidden, match="the name job-a is taken in group g by a job of namespace team"):
        await cluster.acquire(impostor, "job-a")
    guess = pb.YieldRequest(job_id="job-a", lease_id="lease-guess")
    with pytest.raises(NotHolder):
        await cluster.call(cluster.stub.Yield(guess, metadata=impostor))


async def test_pods_are_not_shown_the_ids_of_others_requests(cluster: Cluster) -> None:
    owner, waiting = await cluster.pod("a", job="job-a"), await cluster.pod("b", job="job-b")
    await cluster.acquire(owner, "job-a")
    await cluster.acquire(waiting, "job-b", wait_s=0.1)
    group = await cluster.call(cluster.stub.GetGroup(pb.GetGroupRequest(group_id="g"), metadata=owner))
    assert [(waiter.job_id, waiter.request_id) for waiter in group.waiters] == [("job-b", "")]


async def test_one_nodes_agent_cannot_speak_for_another(cluster: Cluster) -> None:
    thief = ScriptedNode(cluster.channel, "n1", {"g": ("GPU-0",)}, metadata=await cluster.agent("n2"))
    with pytest.raises(grpc.aio.AioRpcError, match="pod timeslice/agent-n2 is on node n2, not on node n1"):
        await thief.connect()


@pytest.mark.parametrize("account", ["default", "timeslice-orchestrator"])
async def test_a_pod_that_is_no_agent_cannot_speak_for_its_node(cluster: Cluster, account: str) -> None:
    fake = ScriptedNode(cluster.channel, "n2", {"g": ("GPU-9",)}, metadata=await cluster.agent("n2", account))
    with pytest.raises(grpc.aio.AioRpcError, match="which is not the service account of nodes"):
        await fake.connect()


@pytest.mark.parametrize("method", ["ForceRelease", "Drain", "Resume", "Reset"])
async def test_an_unprivileged_pod_may_not_do_what_admins_do(
    cluster: Cluster, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    who = await cluster.pod("a", job="job-a")
    request = {
        "ForceRelease": pb.ForceReleaseRequest(group_id="g"),
        "Drain": pb.DrainRequest(group_id="g"),
        "Resume": pb.ResumeRequest(group_id="g"),
        "Reset": pb.ResetRequest(group_id="g", job_id="job-a"),
    }[method]
    with caplog.at_level(logging.INFO, "timeslice.audit"), pytest.raises(Forbidden, match="lacks the right to"):
        await cluster.call(getattr(cluster.stub, method)(request, metadata=who))
    (line,) = [record.getMessage() for record in caplog.records if record.name == "timeslice.audit"]
    assert "by pod team/a: refused" in line


async def test_a_user_with_the_right_does_what_admins_do_and_sees_what_rbac_shows(cluster: Cluster) -> None:
    user = account_name("ops", "admin")
    who = bearer(cluster.server.accounts.issue("ops", "admin"))
    with pytest.raises(Forbidden, match=r"lacks the right to get timeslicegroups.timeslice.dev"):
        await cluster.call(cluster.stub.ListGroups(pb.ListGroupsRequest(), metadata=who))
    cluster.server.accounts.rights = {(user, "drain", "g"), (user, "get", "")}
    await cluster.call(cluster.stub.Drain(pb.DrainRequest(group_id="g"), metadata=who))
    with pytest.raises(Forbidden, match=r"lacks the right to drain timeslicegroups.timeslice.dev closed"):
        await cluster.call(cluster.stub.Drain(pb.DrainRequest(group_id="closed"), metadata=who))
    seen = await cluster.call(cluster.stub.ListGroups(pb.ListGroupsRequest(), metadata=who))
    assert [group.group_id for group in seen.groups] == ["closed", "g"]
    with pytest.raises(Forbidden, match="may not acquire"):
        await cluster.acquire(who, "job-a")


async def test_no_token_no_answer(cluster: Cluster) -> None:
    with pytest.raises(Unauthenticated, match="the call has no token"):
        await cluster.acquire((), "job-a")


@pytest.mark.timeout(30)
async def test_a_pods_program_that_tries_what_is_not_its_own_is_let_in_to_its_own_alone(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The program that a pod of the real cluster runs in the tests there."""
    ((_, bearer_of_b),) = await cluster.pod("b", job="job-b")
    await cluster.pod("a", job="job-a")
    (tmp_path / "token").write_text(bearer_of_b.removeprefix("Bearer "))
    environment = {
        "TIMESLICE_ORCHESTRATOR": cluster.address,
        "TIMESLICE_TLS_CA": str(tmp_path / "certificates/ca.pem"),
        "TIMESLICE_TOKEN_FILE": str(tmp_path / "token"),
        "TIMESLICE_JOB_ID": "job-b",
        "TIMESLICE_GROUP_ID": "g",
        "TIMESLICE_NODE_SOCKET": "",
    }
    program = Path(__file__).parents[1] / "e2e/program_stranger.py"
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(program), "job-a", env={**os.environ, **environment}, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await process.communicate()
    outcomes = dict(line.split(": ") for line in said.decode().splitlines())
    assert outcomes.pop("its own turn") == "let in"
    refused = [outcomes.pop(what) for what in ("a neighbour's turn", "a neighbour's place", "a release")]
    assert refused == ["Forbidden"] * 3
    assert outcomes == dict.fromkeys(("no token", "a forged token"), "Unauthenticated")
