"""The node is killed at every step; what it leaves is found again, and the job loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from node_process import NodeProcess
from node_world import MIB, NAMES, World, cuda_state, in_use
from timeslice_api.errors import ConnectionLost

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

Jobs = Callable[..., Puppet]


class Victim:
    """Nodes in processes of their own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.node: NodeProcess | None = None

    async def start(self, *, crash: str = "") -> None:
        self.node = await asyncio.to_thread(NodeProcess, self.world.config(), crash=crash)

    def kill(self) -> None:
        if self.node:
            self.node.kill()
            self.node = None


@pytest.fixture
def victim(world: World) -> Iterator[Victim]:
    made = Victim(world)
    yield made
    made.kill()


def content_job(jobs: Jobs) -> tuple[Puppet, int]:
    job = jobs(2 * MIB)
    pointer = job.must("allocate", size=3 * MIB)
    job.must("fill", pointer=pointer, size=3 * MIB, seed=3)
    return job, pointer


async def parked_by(victim: Victim, world: World, jobs: Jobs) -> tuple[Puppet, int]:
    """A job with known content, as the victim leaves it when it is killed."""
    await victim.start()
    job, pointer = content_job(jobs)
    await world.register("a", job.pid)
    await world.park("a")
    return job, pointer


async def restored_whole(world: World, job: Puppet, pointer: int) -> bool:
    assert NAMES[(await world.restore("a")).state] == "RUNNING"
    assert cuda_state(world.emulator, job.pid) == "RUNNING"
    return bool(job.must("matches", pointer=pointer, size=3 * MIB, seed=3))


async def test_a_job_that_was_parked_by_a_node_which_was_killed_is_restored_by_the_next(
    world: World, victim: Victim, jobs: Jobs
) -> None:
    await victim.start()
    job, pointer = content_job(jobs)
    await world.register("a", job.pid)
    parked = await world.park("a")
    victim.kill()
    await world.start()
    found = (await world.parts())["a"]
    assert NAMES[found.state] == "PARKED"
    assert found.bytes == parked.bytes
    assert not found.resident
    assert await restored_whole(world, job, pointer)


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_node_killed_within_a_step_leaves_a_job_that_the_next_node_understands(
    world: World, victim: Victim, jobs: Jobs, call: str, after: bool
) -> None:
    await victim.start()
    job, pointer = content_job(jobs)
    await world.register("a", job.pid)
    if call in {"restore", "unlock"}:
        await world.park("a")
    world.emulator.inject(Fault(call, hang=True, after=after))
    step = world.park if call in {"lock", "checkpoint"} else world.restore
    going = asyncio.create_task(step("a"))
    await asyncio.sleep(0.4)  # the step hangs by now
    victim.kill()
    with pytest.raises(ConnectionLost):
        await going
    world.emulator.clear_faults()

    await world.start()
    found = (await world.parts())["a"]
    truth = cuda_state(world.emulator, job.pid)
    assert {"RUNNING": "RUNNING", "CHECKPOINTED": "PARKED"}[truth] == NAMES[found.state]
    assert await restored_whole(world, job, pointer)


async def test_a_restore_that_goes_on_although_its_node_was_killed_is_noticed_by_the_next_when_it_has_ended(
    world: World, victim: Victim, jobs: Jobs
) -> None:
    job, pointer = await parked_by(victim, world, jobs)
    world.emulator.inject(Fault("restore", bandwidth=2 * MIB))
    going = asyncio.create_task(world.restore("a"))
    await asyncio.sleep(0.4)
    victim.kill()
    with pytest.raises(ConnectionLost):
        await going
    await world.start(look_interval_s=0.2)
    assert await world.state("a") == "PARKED"  # as the driver says for as long as the copy lasts
    await world.until("a", "LOCKED")
    assert await restored_whole(world, job, pointer)


@pytest.mark.parametrize("crash", ["before-write:1", "after-write:1", "before-write:2", "after-write:2"])
async def test_a_node_killed_at_a_write_of_its_journal_loses_no_process(
    world: World, victim: Victim, jobs: Jobs, crash: str
) -> None:
    await victim.start(crash=crash)
    job, pointer = content_job(jobs)
    assert victim.node
    with suppress(ConnectionLost):
        await world.register("a", job.pid)
        await world.park("a")
    with suppress(ConnectionLost):  # a write behind may come a moment after the answer
        for _ in range(50):
            await world.parts()
            await asyncio.sleep(0.05)
    assert victim.node.wait() == -9
    victim.node = None

    await world.start()
    if "a" not in await world.parts():  # killed before the registration was answered: nothing had been touched
        assert crash == "before-write:1"
        await world.register("a", job.pid)
    assert await restored_whole(world, job, pointer)


async def test_a_process_that_ended_while_no_node_ran_is_not_looked_for_under_its_number(
    world: World, victim: Victim, jobs: Jobs
) -> None:
    await victim.start()
    job, survivor = jobs(2 * MIB), jobs(2 * MIB)
    await world.register("a", job.pid)
    await world.register("a", survivor.pid)
    await world.park("a")
    victim.kill()
    job.kill()
    await world.start()
    part = (await world.parts())["a"]
    assert (NAMES[part.state], part.processes) == ("PARKED", 1)


async def test_a_journal_of_another_boot_is_no_word_about_processes_of_this_one(
    world: World, victim: Victim, jobs: Jobs, folder: Path
) -> None:
    await victim.start()
    job, _ = content_job(jobs)
    await world.register("a", job.pid)
    victim.kill()
    boot_id = "00000000-0000-4000-8000-000000000000"
    proc = folder / "proc"
    proc.mkdir()
    for entry in Path("/proc").iterdir():
        if entry.name != "sys":
            (proc / entry.name).symlink_to(entry)
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text(boot_id)
    await world.start(proc_root=proc)
    assert await world.parts() == {}


async def test_a_corrupt_journal_is_kept_aside_and_parked_jobs_are_found_by_their_environment(
    world: World, victim: Victim, jobs: Jobs
) -> None:
    await victim.start()
    job = jobs(2 * MIB, env={"TIMESLICE_JOB_ID": "a", "TIMESLICE_GROUP_ID": "default"})
    await world.register("a", job.pid)
    await world.park("a")
    await asyncio.sleep(0.5)
    victim.kill()
    journal = world.folder / "state" / "journal.json"
    journal.write_bytes(journal.read_bytes()[:-20])

    node = await world.start()
    assert "journal.json.corrupt-1" in node.notice
    assert (world.folder / "state" / "journal.json.corrupt-1").exists()
    assert await world.state("a") == "PARKED"
    assert NAMES[(await world.restore("a")).state] == "RUNNING"
    assert in_use(world.emulator) > 2 * MIB


async def test_a_parked_job_whose_record_is_lost_is_found_when_it_registers_again(
    world: World, victim: Victim, jobs: Jobs
) -> None:
    job, pointer = await parked_by(victim, world, jobs)
    victim.kill()
    (world.folder / "state" / "journal.json").unlink()
    await world.start()
    assert await world.parts() == {}
    assert NAMES[(await world.register("a", job.pid)).state] == "PARKED"
    assert await restored_whole(world, job, pointer)
