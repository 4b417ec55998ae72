"""What a pod can ask of the node, and what it cannot."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import time
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World, cuda_state
from pod_world import ClaimWorld, Door
from timeslice_api.errors import ConfigError, InvalidRequest, OrchestratorInCharge, Unavailable
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_driver import claim_sockets
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.discovery import Discovery, Scope

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
JOB_A = {"TIMESLICE_JOB_ID": "job-a"}
HANDSHAKE, CONNECTIONS = "grpc.server_handshake_timeout_ms", "grpc.max_allowed_incoming_connections"


@pytest.fixture
def options() -> dict[str, Any]:
    return {"gpus": 2, "memory": 64 * MIB}


@pytest.fixture
async def kube(world: World) -> AsyncIterator[ClaimWorld]:
    made = ClaimWorld(world)
    await made.start(look_interval_s=60)
    yield made
    await made.stop()


async def test_a_process_registers_whatever_number_its_pod_gives_it(kube: ClaimWorld, jobs: Jobs) -> None:
    pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
    pod.put(job.pid)
    async with kube.door(await kube.prepare(pod)) as door:
        part = await door.register()
        assert (NAMES[part.state], part.processes, list(part.device_ids)) == ("RUNNING", 1, kube.devices[:1])
        await door.ask(door.stub.Unregister(pb.UnregisterRequest(job_id="job-a", group_id="trainers", pid=1)))
        assert (await door.jobs()).parts[0].processes == 1


async def test_a_process_in_a_pod_is_named_when_its_number_there_is_one_process_and_its_end_is_told(
    kube: ClaimWorld, jobs: Jobs
) -> None:
    pod, (first, second) = kube.pod(), (jobs(4 * MIB, env=JOB_A) for _ in range(2))
    pod.put(first.pid, second.pid)
    async with kube.door(await kube.prepare(pod)) as door:

        async def named(pid: int) -> str:
            request = pb.RegisterRequest(job_id="job-a", group_id="trainers", pid=pid)
            return str((await door.ask(door.stub.Register(request))).process)

        assert await named(1) == ""
        name = await named(first.pid)  # there is one pid namespace here, so the number is the same inside
        assert name.startswith(f"node-1/{first.pid}/")
        second.kill()  # nobody asked by it
        first.kill()
        told: list[str] = []
        while not told:
            told += (await kube.orchestrator.report()).ended_processes
        assert told == [name]


async def test_a_pod_cannot_register_as_another_job(kube: ClaimWorld) -> None:
    await kube.prepare(kube.pod(), "job-b", devices=(1,))
    async with kube.door(await kube.prepare(kube.pod())) as door:
        with pytest.raises(InvalidRequest, match=r"claim rl/claim-.* is prepared for job job-a, so .* of job job-b"):
            await door.register("job-b")
        with pytest.raises(InvalidRequest, match="device_ids: 'GPU-x' is not in the claims of job job-a"):
            await door.register(device_ids=["GPU-x"])
        with pytest.raises(InvalidRequest, match="job_id is empty"):
            await door.register("")


async def test_a_group_of_the_job_that_is_in_other_pods_is_nothing_to_register_here(kube: ClaimWorld) -> None:
    await kube.prepare(kube.pod(), group_id="samplers", devices=(1,))
    async with kube.door(await kube.prepare(kube.pod())) as door:
        part = await door.register(group_id="samplers")
        assert (list(part.device_ids), part.processes) == ([], 0)


async def test_the_socket_of_one_claim_is_enough_for_a_pod_with_claims_of_two_groups(kube: ClaimWorld) -> None:
    pod = kube.pod()
    claim = await kube.prepare(pod)
    await kube.prepare(pod, group_id="samplers", devices=(1,))
    async with kube.door(claim) as door:
        assert list((await door.register(group_id="samplers")).device_ids) == [kube.devices[1]]
        jobs = await door.jobs()
        assert {part.member.group_id for part in jobs.parts} == {"trainers", "samplers"}
        assert {device.device_id for device in jobs.devices} == set(kube.devices)


async def test_a_pod_sees_its_own_part_and_device_only_and_hears_of_nobody_else(kube: ClaimWorld) -> None:
    async with kube.door(await kube.prepare(kube.pod())) as door:
        watch = door.stub.WatchJobs(pb.WatchJobsRequest())
        first = await watch.read()
        assert [part.member.job_id for part in first.parts] == ["job-a"]
        assert [device.device_id for device in first.devices] == [kube.devices[0]]
        other = await kube.prepare(kube.pod(), "job-b", devices=(1,))
        await kube.claims.remove(other.uid)
        second = asyncio.ensure_future(watch.read())
        await asyncio.sleep(0.1)
        assert not second.done()
        watch.cancel()
        await asyncio.gather(second, return_exceptions=True)


async def test_no_pod_can_park_or_restore_anybody(kube: ClaimWorld, jobs: Jobs) -> None:
    pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
    pod.put(job.pid)
    async with kube.door(await kube.prepare(pod)) as door:
        await door.register()
        for call in (
            door.stub.Snapshot(pb.SnapshotRequest(job_id="job-a")),
            door.stub.Restore(pb.RestoreRequest(job_id="job-a")),
        ):
            with pytest.raises(OrchestratorInCharge, match="pods do not park or restore") as refused:
                await door.ask(call)
            assert "acquire the group" in refused.value.hint
    assert cuda_state(kube.world.emulator, job.pid) == "RUNNING"


async def test_a_pod_that_registers_without_end_keeps_the_node_from_nobody_elses_processes(
    kube: ClaimWorld, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, other = kube.pod(), kube.pod()
    other.put(jobs(4 * MIB, env={"TIMESLICE_JOB_ID": "job-b"}).pid)
    claims = await kube.prepare(eve), await kube.prepare(other, "job-b", devices=(1,))
    scan = Discovery.scan

    def slow(self: Discovery, scopes: Sequence[Scope], *rest: Any, **named: Any) -> Any:
        time.sleep(0.1 * any(scope.member.job_id == "job-a" for scope in scopes))
        return scan(self, scopes, *rest, **named)

    monkeypatch.setattr(Discovery, "scan", slow)
    async with kube.door(claims[0]) as flooding, kube.door(claims[1]) as door:
        flood = [asyncio.create_task(flooding.register()) for _ in range(25)]
        await asyncio.sleep(0.2)  # they are all under way
        async with asyncio.timeout(1.5):
            assert (await door.register("job-b")).processes == 1
        assert not all(task.done() for task in flood)
        await asyncio.gather(*flood)  # they are answered, one after the other


async def test_connections_of_a_pod_that_say_nothing_keep_nobody_out_and_are_let_go(
    kube: ClaimWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claim_sockets._OPTIONS[HANDSHAKE] == 10_000
    monkeypatch.setitem(claim_sockets._OPTIONS, HANDSHAKE, 1_000)
    path = kube.door(await kube.prepare(kube.pod())).path
    neighbour = kube.door(await kube.prepare(kube.pod(), "job-b", devices=(1,)))
    silent = [await asyncio.open_unix_connection(path) for _ in range(200)]
    async with Door(path) as door, neighbour, asyncio.timeout(20):
        await door.register()
        await neighbour.register("job-b")
        for reader, writer in silent:
            while await reader.read(4096):  # what the node says first
                pass
            writer.close()
            await writer.wait_closed()
        await door.register()


async def test_a_pod_has_so_many_connections_and_no_more_and_each_that_ends_leaves_its_place(
    kube: ClaimWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert claim_sockets._OPTIONS[CONNECTIONS] == 256
    monkeypatch.setitem(claim_sockets._OPTIONS, CONNECTIONS, 4)
    path = kube.door(await kube.prepare(kube.pod())).path
    async with kube.door(await kube.prepare(kube.pod(), "job-b", devices=(1,))) as neighbour:
        for _ in range(3):
            async with contextlib.AsyncExitStack() as stack:
                for _ in range(4):
                    await _in(stack, path)
                with pytest.raises(Unavailable):
                    await (await stack.enter_async_context(Door(path))).register()
                await neighbour.register("job-b")


async def _in(stack: contextlib.AsyncExitStack, path: Path) -> None:
    """Registers by a connection of its own. The node hears of the end of an earlier one a moment after it."""
    while True:
        door = await stack.enter_async_context(Door(path))
        try:
            await door.register()
        except Unavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_flood_of_bytes_is_refused(kube: ClaimWorld) -> None:
    async with kube.door(await kube.prepare(kube.pod())) as door:
        with pytest.raises(Exception, match="larger than max"):
            await door.register("x" * (1 << 20))


async def test_folder_and_socket_are_open_to_every_user_of_the_pod_and_go_with_the_claim(kube: ClaimWorld) -> None:
    before = os.umask(0o077)
    try:
        claim = await kube.prepare(kube.pod())
    finally:
        os.umask(before)
    socket = kube.door(claim).path
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o755
    assert stat.S_IMODE(socket.stat().st_mode) == 0o666
    await kube.claims.add(claim)  # as after a repeated prepare
    async with Door(socket) as door:
        await door.register()
    await kube.claims.remove(claim.uid)
    assert not socket.parent.exists()


async def test_after_a_restart_the_socket_is_there_again_in_the_same_folder(kube: ClaimWorld) -> None:
    claim = await kube.prepare(kube.pod())
    folder = kube.door(claim).path.parent
    inode = folder.stat().st_ino
    await kube.world.stop()
    kube.made()
    await kube.claims.replace([claim])
    await kube.start(look_interval_s=60)
    assert folder.stat().st_ino == inode  # what a running container has mounted
    async with kube.door(claim) as door:
        assert list((await door.register()).device_ids) == [kube.devices[0]]


async def test_a_claim_that_is_prepared_while_no_node_works_has_its_folder_and_later_its_socket(
    kube: ClaimWorld,
) -> None:
    await kube.world.stop()
    claim = await kube.prepare(kube.pod())
    assert list(kube.door(claim).path.parent.iterdir()) == []
    await kube.start(look_interval_s=60)
    async with kube.door(claim) as door:
        await door.register()


async def test_a_claim_that_is_being_unprepared_is_told_so(kube: ClaimWorld) -> None:
    async with kube.door(await kube.prepare(kube.pod())) as door:
        kube.claims._claims.clear()
        with pytest.raises(Unavailable, match="not prepared any more"):
            await door.register()


async def test_a_folder_that_cannot_be_made_is_an_error_and_the_claim_is_not_taken(kube: ClaimWorld) -> None:
    (kube.folder / "file").write_text("")
    sockets = ClaimSockets(kube.folder / "file" / "claims")
    with pytest.raises(ConfigError, match="cannot make"):
        await sockets.open(PreparedClaim("uid", "rl", "c", "job-a", "trainers", (), {}))


async def test_each_claim_has_the_authorities_of_the_orchestrator_and_gets_newer_ones(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ca, folder = tmp_path / "ca.crt", tmp_path / "claims"
    ca.write_text("first")
    sockets = ClaimSockets(folder, ca)
    for uid in ("one", "two", "gone"):
        await sockets.open(PreparedClaim(uid, "rl", uid, "job-a", "trainers", (), {}))
    await sockets.close("gone")
    files = [folder / uid / "ca.crt" for uid in ("one", "two")]
    assert [(each.read_text(), stat.S_IMODE(each.stat().st_mode)) for each in files] == [("first", 0o644)] * 2
    ca.write_text("second")
    sockets.renew_ca()
    assert [each.read_text() for each in files] == ["second"] * 2
    assert not (folder / "gone").exists()
    ca.unlink()
    sockets.renew_ca()
    assert [each.read_text() for each in files] == ["second"] * 2
    assert caplog.text.count("keeps the former authorities") == 2
    with pytest.raises(ConfigError, match=r"folder of claim late: .*ca.crt: No such file"):
        await sockets.open(PreparedClaim("late", "rl", "late", "job-a", "trainers", (), {}))


async def test_many_claims_cost_little_each(kube: ClaimWorld) -> None:
    def descriptors() -> int:
        return sum(1 for _ in Path("/proc/self/fd").iterdir())

    await kube.prepare(kube.pod())
    before = descriptors()
    claims = [await kube.prepare(kube.pod(), f"job-{number}") for number in range(64)]
    assert descriptors() - before <= 64 + 2
    for claim in claims:
        await kube.claims.remove(claim.uid)
    assert descriptors() <= before + 2
