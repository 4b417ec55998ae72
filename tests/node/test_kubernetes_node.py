"""Kubelet plugin and agent in one process: started in order, without a driver too, and taken over from another."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from certificates import Authority
from dra_kubeletplugin.apiserver import PODS
from dra_samples import NODE
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet
from gpu_emulator.emulator import Emulator
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, config_for
from plugin_world import PluginWorld
from pod_world import Door, Pod
from scripted_orchestrator import ScriptedOrchestrator
from timeslice_api.errors import ConfigError, OperationFailed
from timeslice_driver.dra.cdi import CdiFolder
from timeslice_driver.kubernetes_node import KubernetesNode

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

Jobs = Callable[..., Puppet]
TRAINER = {"TIMESLICE_JOB_ID": "trainer"}


@pytest.fixture
def options() -> dict[str, Any]:
    return {"gpus": 2, "memory": 64 * MIB}


class Machine:
    """A machine of a cluster, on which one daemon or two are started."""

    def __init__(self, emulator: Emulator, server: FakeApiServer, folder: Path) -> None:
        self.cluster = PluginWorld(emulator, server, folder)
        self.server = server
        self.folder = folder
        self.orchestrator = ScriptedOrchestrator(folder / "o.sock")
        self.cgroups = folder / "cgroup"
        self.config = config_for(
            emulator, folder, name=NODE, orchestrator=self.orchestrator.address, cgroup_root=self.cgroups, groups={}
        )
        self.started: list[KubernetesNode] = []

    async def set_up(self) -> None:
        self.cgroups.mkdir()
        (self.cgroups / "cgroup.controllers").write_text("memory\n")
        await self.cluster.set_up()
        await self.orchestrator.start()

    async def start(self, *, pod_uid: str = "", **changes: Any) -> KubernetesNode:
        plugin = replace(self.cluster.config, ca=changes.pop("ca", None))
        config = replace(self.config, **changes)
        kubeconfig = str(self.server.kubeconfig(self.folder / "kubeconfig"))
        libnvml = changes.get("libnvml", plugin.libnvml)
        node = KubernetesNode(
            config, replace(plugin, pod_uid=pod_uid, libnvml=libnvml), kubeconfig=kubeconfig, telemetry="127.0.0.1:0"
        )
        self.started.append(node)
        await node.start()
        return node

    async def stop(self) -> None:
        for node in self.started:
            await node.stop()
        await self.orchestrator.stop()

    async def prepared(self, name: str = "c", device: str = "gpu-0-rl-a") -> tuple[str, Pod]:
        """A claim that the kubelet has had prepared, and its pod's cgroup."""
        uid = await self.cluster.add_claim(name, device)
        written = self.server.one(PODS, f"pod-of-{name}", namespace="rl")
        assert written
        pod = Pod(self.cgroups, layout=f"kubepods/pod{written['metadata']['uid']}")  # the kubelet makes it before
        answer = await self.cluster.prepare(uid, name)
        assert not answer.error
        return uid, pod


@pytest.fixture
async def machine(emulator: Emulator, folder: Path) -> AsyncIterator[Machine]:
    async with FakeApiServer() as server:
        made = Machine(emulator, server, folder)
        await made.set_up()
        yield made
        await made.stop()


async def works(node: KubernetesNode) -> None:
    async with asyncio.timeout(20):
        while node.node is None or not node.node.connected:
            await asyncio.sleep(0.02)


async def get(node: KubernetesNode, path: str, *, tls: ssl.SSLContext | None = None) -> tuple[int, str]:
    url = f"{'https' if tls else 'http'}://127.0.0.1:{node.telemetry_port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url, ssl=tls or True) as answer:
        return answer.status, await answer.text()


async def test_a_claim_of_the_kubelet_becomes_a_part_that_takes_turns(machine: Machine, jobs: Jobs) -> None:
    node = await machine.start()
    await works(node)
    uid, pod = await machine.prepared()
    job = jobs(4 * MIB, env=TRAINER)
    pod.put(job.pid)
    async with Door(machine.cluster.config.sockets / uid / "agent.sock") as door:
        assert NAMES[(await door.register("trainer", "rl-a")).state] == "RUNNING"
    assert (await machine.orchestrator.groups_declared()).keys() == {"rl-a"}
    await machine.orchestrator.command({("trainer", "rl-a"): "PARKED"})
    status, metrics = await get(node, "/metrics")
    assert status == 200
    for line in (
        'timeslice_node_parts{state="parked"} 1.0',
        'timeslice_node_step_seconds_count{step="checkpoint"} 1.0',
        "timeslice_node_orchestrator_connected 1.0",
        "timeslice_node_driver_working 1.0",
        "timeslice_claims_prepared 1.0",
    ):
        assert line in metrics
    assert _value(metrics, "timeslice_node_parked_bytes_total") >= 4 * MIB
    assert _value(metrics, "timeslice_node_host_memory_parked_bytes") >= 4 * MIB
    assert await machine.cluster.unprepare(uid) == ""
    assert not (machine.cluster.config.sockets / uid).exists()


async def test_metrics_and_probes_are_by_tls_where_the_node_has_a_certificate(machine: Machine, folder: Path) -> None:
    authority = Authority(folder / "authority")
    node = await machine.start(tls=replace(authority.certificate("127.0.0.1"), ca=authority.file))
    await works(node)
    trusting = ssl.create_default_context(cafile=authority.file)
    assert (await get(node, "/healthz", tls=trusting))[0] == 200
    assert "timeslice_node_orchestrator_connected 1.0" in (await get(node, "/metrics", tls=trusting))[1]
    with pytest.raises(aiohttp.ClientError):
        await get(node, "/metrics")


async def test_prepared_claims_are_in_the_first_hello_after_a_restart(machine: Machine) -> None:
    node = await machine.start()
    await works(node)
    await machine.prepared()
    await node.stop()
    await machine.orchestrator.hello()
    await works(await machine.start())
    hello = await machine.orchestrator.hello()
    assert [(part.member.job_id, part.member.group_id) for part in hello.parts] == [("trainer", "rl-a")]


async def test_without_an_nvidia_driver_claims_are_unprepared_and_the_agent_follows_when_it_comes(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    node = await machine.start()
    await works(node)
    uid, _ = await machine.prepared()
    await node.stop()
    late = machine.folder / "libnvidia-ml.so.1"
    node = await machine.start(libnvml=str(late))
    async with asyncio.timeout(10):
        while not node.fault:
            await asyncio.sleep(0.02)
    assert f"cannot load {late}" in node.fault
    assert (await get(node, "/healthz"))[0] == 200
    assert "timeslice_node_driver_working 0.0" in (await get(node, "/metrics"))[1]
    assert await machine.cluster.unprepare(uid) == ""
    assert "jobs cannot take turns on this node" in caplog.text
    late.symlink_to(machine.config.libnvml)
    await works(node)
    assert (node.fault, dict(node.claims.claims)) == ("", {})


async def test_probes_tell_whether_the_kubelet_has_the_plugin(machine: Machine) -> None:
    node = await machine.start()
    assert await get(node, "/readyz") == (503, "the kubelet has not taken the plugin yet\n")
    assert (await get(node, "/healthz"))[0] == 200
    await FakeKubelet(machine.folder / "registry").register_all()
    assert (await get(node, "/readyz"))[0] == 200


async def test_the_new_half_of_a_rolling_update_is_ready_at_once_and_knows_what_the_old_one_did_until_its_end(
    machine: Machine,
) -> None:
    old = await machine.start()
    await works(old)
    gone, _ = await machine.prepared("gone")
    new = await machine.start(pod_uid="11111111-2222-4333-8444-555555555555")
    await FakeKubelet(machine.folder / "registry").register_all()
    assert (await get(new, "/readyz"))[0] == 200
    assert gone in new.claims.claims
    came, _ = await machine.prepared("came", "gpu-1-rl-a")  # by the old one, whose socket this is
    await machine.cluster.unprepare(gone, "gone")
    assert (new.node, came in new.claims.claims) == (None, False)
    await old.stop()
    await works(new)
    assert set(new.claims.claims) == {came}
    async with Door(machine.cluster.config.sockets / came / "agent.sock") as door:
        assert (await door.register("trainer", "rl-a")).member.job_id == "trainer"


async def test_a_plugin_that_cannot_go_on_ends_the_process_with_the_reason(machine: Machine) -> None:
    node = await machine.start()
    assert node.plugin
    node.plugin.fatal.set_result(RuntimeError("it is broken"))
    with pytest.raises(OperationFailed, match="the kubelet plugin cannot go on: it is broken"):
        await node.failed()
    assert (await get(node, "/healthz")) == (503, "the kubelet plugin cannot go on: it is broken\n")


def _value(metrics: str, name: str) -> float:
    return next(float(line.split()[1]) for line in metrics.splitlines() if line.startswith(f"{name} "))


async def test_pods_get_the_authorities_of_the_orchestrator_and_those_that_replace_them(
    machine: Machine, tmp_path: Path
) -> None:
    ca = tmp_path / "ca.crt"
    shutil.copy(Authority(tmp_path / "first").file, ca)
    await machine.start(ca=ca)
    uid, _ = await machine.prepared()
    served = machine.cluster.config.sockets / uid / "ca.crt"
    assert served.read_bytes() == ca.read_bytes()
    assert "TIMESLICE_TLS_CA=/run/timeslice/ca.crt" in CdiFolder(machine.cluster.config.cdi_dir).path(uid).read_text()
    new = Path(Authority(tmp_path / "second").file)
    new.rename(ca)
    async with asyncio.timeout(5):
        while served.read_bytes() != ca.read_bytes():
            await asyncio.sleep(0.05)


async def test_authorities_that_cannot_be_read_are_told_at_the_start(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot use .*/none.crt: No such file"):
        await machine.start(ca=tmp_path / "none.crt")


async def test_a_node_listens_on_the_network_for_those_alone_who_read_its_metrics(machine: Machine) -> None:
    before = listening()
    node = await machine.start()
    await machine.prepared()
    async with asyncio.timeout(20):
        while node.node is None:
            await asyncio.sleep(0.05)
    assert listening() - before == {node.telemetry_port}


def listening() -> set[int]:
    """TCP ports that this process listens on."""
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes}
