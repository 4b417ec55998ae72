"""Parts of prepared claims: whose processes they have, what is told of them, and how they come and go."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from gpu_emulator.emulator import Emulator
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World, cuda_state
from pod_world import ClaimWorld
from timeslice_api.v1alpha1 import types_pb2

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
JOB_A = {"TIMESLICE_JOB_ID": "job-a", "TIMESLICE_GROUP_ID": "trainers"}
TRAINERS, SAMPLERS = "job-a/trainers", "job-a/samplers"


@pytest.fixture
def options() -> dict[str, Any]:
    return {"gpus": 2, "memory": 64 * MIB}


@pytest.fixture
async def kube(world: World) -> AsyncIterator[ClaimWorld]:
    made = ClaimWorld(world)
    yield made
    await made.stop()


@pytest.fixture
def puppets(emulator: Emulator) -> Iterator[Callable[..., Puppet]]:
    """Starts processes that have nothing to do with devices yet; they end with the test."""
    with ExitStack() as stack:
        yield lambda **env: stack.enter_context(Puppet(emulator, env=env))


def uses(puppet: Puppet, device: int, size: int) -> None:
    puppet.must("init")
    puppet.must("create_context", device=device)
    puppet.must("allocate", size=size)


async def reported(kube: ClaimWorld, holds: Callable[[types_pb2.Part], bool]) -> types_pb2.Part:
    """The first part reported of which something holds."""
    while True:
        for part in (await kube.orchestrator.report()).parts:
            if holds(part):
                return part


async def end_of(kube: ClaimWorld) -> list[tuple[str, str]]:
    """The members that the next report with an end names."""
    while not (ended := (await kube.orchestrator.report()).ended):
        pass
    return [(member.job_id, member.group_id) for member in ended]


def running(part: types_pb2.Part) -> bool:
    return part.state == types_pb2.PART_STATE_RUNNING


async def test_a_claim_is_a_part_as_soon_as_it_is_prepared_and_its_group_is_told_first(kube: ClaimWorld) -> None:
    await kube.start()
    assert not (await kube.orchestrator.hello()).groups
    await kube.prepare(kube.pod(), devices=(0,))
    part = await reported(kube, lambda part: True)
    assert (part.member.job_id, part.member.group_id, list(part.device_ids)) == ("job-a", "trainers", kube.devices[:1])
    assert part.state == types_pb2.PART_STATE_EMPTY
    assert [message.WhichOneof("message") for message in kube.orchestrator.heard] == ["groups", "report"]
    assert await kube.orchestrator.groups_declared() == {"trainers": kube.devices[:1]}


async def test_claims_that_were_prepared_before_the_start_are_in_the_hello(kube: ClaimWorld) -> None:
    await kube.prepare(kube.pod(), devices=(1,))
    await kube.start()
    hello = await kube.orchestrator.hello()
    assert [(group.group_id, list(group.device_ids)) for group in hello.groups] == [("trainers", [kube.devices[1]])]
    assert [(part.member.job_id, list(part.device_ids)) for part in hello.parts] == [("job-a", [kube.devices[1]])]


async def test_claims_of_one_member_are_one_part(kube: ClaimWorld) -> None:
    await kube.start()
    first, second = kube.pod(), kube.pod()
    one = await kube.prepare(first, devices=(0,))
    await kube.prepare(second, devices=(1,))
    assert list((await kube.parts())[TRAINERS].device_ids) == sorted(kube.devices)
    await kube.claims.remove(one.uid)
    assert list((await kube.parts())[TRAINERS].device_ids) == [kube.devices[1]]


LAYOUTS = {
    "cgroupfs": "kubepods/burstable/pod{uid}",
    "systemd": "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice",
    "kind": "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{flat}.slice",
    "below a cgroup of a test's own": "a/b/kubepods/besteffort/pod{uid}",
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
async def test_a_pods_processes_are_found_parked_and_restored(kube: ClaimWorld, jobs: Jobs, layout: str) -> None:
    await kube.start()
    pod, job = kube.pod(layout=layout), jobs(4 * MIB, env=JOB_A)
    pod.put(job.pid)
    await kube.prepare(pod)
    part = await reported(kube, running)
    assert (part.processes, part.bytes >= 4 * MIB) == (1, True)
    result = await kube.orchestrator.command({("job-a", "trainers"): "PARKED"})
    assert [NAMES[part.state] for part in result.parts] == ["PARKED"]
    assert cuda_state(kube.world.emulator, job.pid) == "CHECKPOINTED"
    await kube.orchestrator.command({("job-a", "trainers"): "RUNNING"}, token=2)
    assert cuda_state(kube.world.emulator, job.pid) == "RUNNING"


async def test_where_no_pods_cgroup_is_visible_proc_tells_the_pods(kube: ClaimWorld, jobs: Jobs) -> None:
    pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
    proc = kube.folder / "proc"
    proc.mkdir()
    for entry in Path("/proc").iterdir():  # as it is, but for the cgroup of the job's process
        if entry.name != str(job.pid):
            (proc / entry.name).symlink_to(entry)
    (proc / str(job.pid)).mkdir()
    for entry in Path(f"/proc/{job.pid}").iterdir():
        if entry.name != "cgroup":
            (proc / str(job.pid) / entry.name).symlink_to(entry)
    (proc / str(job.pid) / "cgroup").write_text(f"0::/kubepods/burstable/pod{pod.uid}/main\n")
    await kube.start(cgroup_root=kube.folder / "nothing", proc_root=proc)
    await kube.prepare(pod)
    assert (await reported(kube, running)).processes == 1


async def test_every_process_of_a_container_with_the_claim_belongs_and_a_sidecar_does_not(
    kube: ClaimWorld, puppets: Callable[..., Puppet]
) -> None:
    await kube.start(look_interval_s=60)
    pod = kube.pod()
    trainer, cleaned, sidecar, pause = (puppets(**env) for env in (JOB_A, {}, {}, {}))
    pod.put(trainer.pid, cleaned.pid)
    pod.put(sidecar.pid, container="proxy")
    pod.put(pause.pid, container="sandbox")
    claim = await kube.prepare(pod)
    async with kube.door(claim) as door:
        assert (await door.register()).processes == 2
        uses(sidecar, 0, MIB)
        assert (await door.register()).processes == 3


async def test_the_node_itself_is_of_no_part_whatever_pod_it_is_in(kube: ClaimWorld) -> None:
    await kube.start(look_interval_s=60)
    pod = kube.pod()
    pod.put(os.getpid())
    claim = await kube.prepare(pod)
    async with kube.door(claim) as door:
        assert (await door.register()).processes == 0


async def test_a_pod_of_another_job_is_not_taken_for_this_ones_by_its_environment(kube: ClaimWorld, jobs: Jobs) -> None:
    await kube.start(look_interval_s=60)
    pod, stranger = kube.pod(), jobs(4 * MIB, env=JOB_A)
    kube.pod().put(stranger.pid)
    claim = await kube.prepare(pod)
    async with kube.door(claim) as door:
        assert (await door.register()).processes == 0


async def test_a_pod_with_claims_of_two_groups_is_two_parts_each_with_who_is_on_its_devices(
    kube: ClaimWorld, puppets: Callable[..., Puppet]
) -> None:
    await kube.start()
    pod = kube.pod()
    trainer, sampler = puppets(**JOB_A), puppets(**JOB_A)
    uses(trainer, 0, 4 * MIB)
    uses(sampler, 1, 2 * MIB)
    pod.put(trainer.pid, sampler.pid)
    await kube.prepare(pod, group_id="trainers", devices=(0,))
    await kube.prepare(pod, group_id="samplers", devices=(1,))
    async with asyncio.timeout(10):
        while {key: NAMES[part.state] for key, part in (await kube.parts()).items()} != {
            TRAINERS: "RUNNING",
            SAMPLERS: "RUNNING",
        }:
            await asyncio.sleep(0.05)
    await kube.orchestrator.command({("job-a", "samplers"): "PARKED"})
    assert cuda_state(kube.world.emulator, sampler.pid) == "CHECKPOINTED"
    assert cuda_state(kube.world.emulator, trainer.pid) == "RUNNING"


class TestEnds:
    """A part ends with its processes, and comes back with new ones."""

    async def test_a_part_whose_processes_end_is_told_as_ended_and_comes_back_with_new_ones(
        self, kube: ClaimWorld, jobs: Jobs
    ) -> None:
        await kube.start()
        pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
        pod.put(job.pid)
        await kube.prepare(pod)
        await reported(kube, running)
        job.process.kill()
        job.process.wait()
        assert await end_of(kube) == [("job-a", "trainers")]
        assert await kube.parts() == {}
        pod.put(jobs(4 * MIB, env=JOB_A).pid, container="main-1")
        assert (await reported(kube, running)).processes == 1
        assert kube.orchestrator.declared.qsize() == 1  # its group has not changed

    async def test_it_comes_back_at_once_when_one_registers(self, kube: ClaimWorld, jobs: Jobs) -> None:
        await kube.start(look_interval_s=60)
        pod, job = kube.pod(), jobs(env=JOB_A)
        pod.put(job.pid)
        claim = await kube.prepare(pod)
        async with kube.door(claim) as door:
            await door.register()
            job.process.kill()
            job.process.wait()
            assert await end_of(kube) == [("job-a", "trainers")]
            pod.put(jobs(4 * MIB, env=JOB_A).pid)
            assert running(await door.register())

    async def test_a_pod_that_has_not_started_anything_has_not_ended(self, kube: ClaimWorld) -> None:
        await kube.start(look_interval_s=0.05)
        await kube.prepare(kube.pod())
        await asyncio.sleep(0.3)
        assert list(await kube.parts()) == [TRAINERS]

    async def test_an_unprepared_claim_ends_its_part_and_takes_its_device_out_of_the_group_afterwards(
        self, kube: ClaimWorld
    ) -> None:
        await kube.start(look_interval_s=60)
        claim = await kube.prepare(kube.pod())
        await reported(kube, lambda part: True)
        await kube.claims.remove(claim.uid)
        await kube.claims.remove(claim.uid)
        assert await end_of(kube) == [("job-a", "trainers")]
        await kube.orchestrator.groups_declared()
        assert await kube.orchestrator.groups_declared() == {}
        kinds = [message.WhichOneof("message") for message in kube.orchestrator.heard]
        assert kinds == ["groups", "report", "report", "groups"]

    async def test_what_outlives_its_claim_stays_in_the_nodes_charge_until_it_has_ended(
        self, kube: ClaimWorld, jobs: Jobs
    ) -> None:
        await kube.start()
        pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
        pod.put(job.pid)
        claim = await kube.prepare(pod)
        await reported(kube, running)
        await kube.orchestrator.command({("job-a", "trainers"): "PARKED"})
        await kube.claims.remove(claim.uid)
        assert NAMES[(await kube.parts())[TRAINERS].state] == "PARKED"
        job.process.kill()
        job.process.wait()
        assert await end_of(kube) == [("job-a", "trainers")]

    async def test_a_device_may_go_to_another_group(self, kube: ClaimWorld) -> None:
        await kube.start(look_interval_s=60)
        claim = await kube.prepare(kube.pod())
        await reported(kube, lambda part: True)
        kube.orchestrator.heard.clear()
        await kube.claims.remove(claim.uid)
        await kube.prepare(kube.pod(), "job-b", "samplers")
        part = await reported(kube, lambda part: True)
        assert (part.member.job_id, part.member.group_id) == ("job-b", "samplers")
        messages = [message.WhichOneof("message") for message in kube.orchestrator.heard]
        assert messages[0] == "report"  # job-a's end, before its device is told to be another group's
        assert messages[-2:] == ["groups", "report"]


class TestRestarts:
    """What is parked is found again, whatever of the node's memory is lost."""

    async def parked(self, kube: ClaimWorld, jobs: Jobs) -> tuple[Puppet, Any]:
        await kube.start()
        pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
        pod.put(job.pid)
        claim = await kube.prepare(pod)
        await reported(kube, running)
        await kube.orchestrator.command({("job-a", "trainers"): "PARKED"})
        await kube.world.stop()
        return job, claim

    async def restored(self, kube: ClaimWorld, job: Puppet) -> None:
        await kube.orchestrator.command({("job-a", "trainers"): "RUNNING"}, token=5, command_id=99)
        assert cuda_state(kube.world.emulator, job.pid) == "RUNNING"

    async def test_with_claims_and_journal(self, kube: ClaimWorld, jobs: Jobs) -> None:
        job, claim = await self.parked(kube, jobs)
        kube.made()
        await kube.claims.replace([claim])
        await kube.start()
        part = (await kube.parts())[TRAINERS]
        assert (NAMES[part.state], part.bytes >= 4 * MIB) == ("PARKED", True)
        await self.restored(kube, job)

    async def test_with_claims_but_a_spoilt_journal(self, kube: ClaimWorld, jobs: Jobs) -> None:
        job, claim = await self.parked(kube, jobs)
        (kube.folder / "state" / "journal.json").write_bytes(b"spoilt")
        kube.made()
        await kube.claims.replace([claim])
        await kube.start()
        assert NAMES[(await kube.parts())[TRAINERS].state] == "PARKED"
        await self.restored(kube, job)

    async def test_with_a_journal_but_without_the_claim_it_is_still_restorable_and_joins_the_claim_later(
        self, kube: ClaimWorld, jobs: Jobs
    ) -> None:
        job, claim = await self.parked(kube, jobs)
        kube.made()
        await kube.start()
        assert NAMES[(await kube.parts())[TRAINERS].state] == "PARKED"
        await kube.claims.add(claim)
        assert NAMES[(await kube.parts())[TRAINERS].state] == "PARKED"
        await self.restored(kube, job)

    async def test_two_nodes_of_a_rolling_update_take_turns(self, kube: ClaimWorld, jobs: Jobs) -> None:
        await kube.start()
        pod, job = kube.pod(), jobs(4 * MIB, env=JOB_A)
        pod.put(job.pid)
        claim = await kube.prepare(pod)
        await reported(kube, running)
        old = kube.world.node
        assert old
        kube.made()
        await kube.claims.replace([claim])
        starting = asyncio.create_task(kube.start())
        await asyncio.sleep(0.3)
        assert not starting.done()
        await old.stop()
        async with asyncio.timeout(10):
            await starting
        async with kube.door(claim) as door:
            assert running(await door.register())
