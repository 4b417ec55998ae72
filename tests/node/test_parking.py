from __future__ import annotations

import asyncio
import math
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from launched_job import Launch
from node_world import MIB, NAMES, World, cuda_state, failing, in_use
from timeslice_driver.job_files import JobFiles
from timeslice_driver.preflight import Margins
from timeslice_driver.processes import ProcFs

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
ORPHAN_OF_SHELL = ("sh", "-c", 'exec 3<&0; "$@" <&3 & wait', "sh")  # a shell with the process as its child


async def test_a_job_that_is_parked_and_restored_finds_every_byte_again(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(8 * MIB, 3 * MIB)
    pointer = job.must("allocate", size=5 * MIB)
    job.must("fill", pointer=pointer, size=5 * MIB, seed=7)
    await world.register("a", job.pid)
    before = in_use(world.emulator)

    parked = await world.park("a")
    assert NAMES[parked.state] == "PARKED"
    assert not parked.resident
    assert parked.bytes == before
    assert in_use(world.emulator) == 0
    assert parked.timings.lock_s > 0
    assert parked.timings.checkpoint_s > 0

    restored = await world.restore("a")
    assert NAMES[restored.state] == "RUNNING"
    assert restored.resident
    assert restored.bytes == before
    assert job.must("matches", pointer=pointer, size=5 * MIB, seed=7)


async def test_calls_of_a_parked_job_wait_until_it_is_restored(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    call = job.begin("allocate", size=MIB)
    assert job.is_blocked(call)
    await world.restore("a")
    assert job.finish(call)[0] == 0


async def test_two_jobs_take_turns_on_memory_that_cannot_hold_both(world: World, jobs: Jobs) -> None:
    await world.start()
    first = jobs(36 * MIB)
    await world.register("a", first.pid)
    await world.park("a")
    second = jobs(36 * MIB)
    await world.register("b", second.pid)
    for _ in range(2):
        await world.park("b")
        await world.restore("a")
        await world.park("a")
        await world.restore("b")
    assert await world.state("a") == "PARKED"
    assert await world.state("b") == "RUNNING"


async def test_parking_and_restoring_twice_does_no_harm(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    for _ in range(2):
        assert NAMES[(await world.park("a")).state] == "PARKED"
    for _ in range(2):
        assert NAMES[(await world.restore("a")).state] == "RUNNING"


async def test_a_part_without_accelerator_state_reaches_any_target_as_it_is(world: World) -> None:
    await world.start()
    process = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await world.register("a", process.pid)
        assert NAMES[(await world.park("a")).state] == "EMPTY"
        assert NAMES[(await world.restore("a")).state] == "EMPTY"
    finally:
        process.kill()
        await process.wait()


async def test_a_process_that_only_asked_for_devices_has_nothing_to_park(
    world: World, jobs: Jobs, emulator: Any
) -> None:
    await world.start()
    with Puppet(emulator) as asker:
        asker.must("init")
        asker.must("device_count")
        part = await world.register("a", asker.pid)
        assert NAMES[part.state] == "EMPTY"
        assert NAMES[(await world.park("a")).state] == "EMPTY"


async def test_the_descendants_of_a_registered_process_are_parked_with_it(world: World, jobs: Jobs) -> None:
    await world.start()
    worker = jobs(4 * MIB, prefix=ORPHAN_OF_SHELL)
    part = await world.register("a", worker.process.pid)
    assert part.processes == 2
    assert NAMES[(await world.park("a")).state] == "PARKED"
    assert cuda_state(world.emulator, worker.must("own_pid")) == "CHECKPOINTED"
    await world.restore("a")


async def test_a_descendant_whose_parent_has_died_still_belongs_to_the_job(world: World, jobs: Jobs) -> None:
    await world.start()
    worker = jobs(4 * MIB, prefix=ORPHAN_OF_SHELL)
    pid = worker.must("own_pid")
    await world.register("a", worker.process.pid)
    worker.kill()  # the shell
    await asyncio.sleep(0.2)
    part = await world.park("a")
    assert (NAMES[part.state], part.processes) == ("PARKED", 1)
    os.kill(pid, signal.SIGKILL)
    await world.until("a", "GONE")


async def test_a_process_that_left_its_family_is_known_by_its_environment(world: World, jobs: Jobs) -> None:
    await world.start(look_interval_s=60)
    root = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        await world.register("a", root.pid)
        worker = jobs(4 * MIB, env={"TIMESLICE_JOB_ID": "a", "TIMESLICE_GROUP_ID": "default"})
        other = jobs(4 * MIB, env={"TIMESLICE_JOB_ID": "b", "TIMESLICE_GROUP_ID": "default"})
        second = jobs(MIB)
        await world.register("a", second.pid)
        assert NAMES[(await world.park("a")).state] == "PARKED"
        assert cuda_state(world.emulator, worker.pid) == "CHECKPOINTED"
        assert cuda_state(world.emulator, other.pid) == "RUNNING"
    finally:
        root.kill()
        await root.wait()


async def test_a_process_that_makes_its_first_context_is_noticed_without_a_command(world: World, emulator: Any) -> None:
    await world.start()
    with Puppet(emulator) as job:
        job.must("init")
        assert NAMES[(await world.register("a", job.pid)).state] == "EMPTY"
        job.must("create_context", device=0)
        job.must("allocate", size=MIB)
        part = await world.until("a", "RUNNING")
        assert part.resident


async def test_a_process_that_comes_between_the_look_and_the_lock_is_parked_too(
    world: World, jobs: Jobs, emulator: Any
) -> None:
    await world.start(look_interval_s=60)
    first = jobs(4 * MIB, env={"TIMESLICE_JOB_ID": "a"})
    await world.register("a", first.pid)
    with Puppet(emulator, env={"TIMESLICE_JOB_ID": "a"}) as late:
        late.must("init")
        emulator.inject(Fault("lock", pid=first.pid, delay_ms=1000))
        parking = asyncio.create_task(world.park("a"))
        await asyncio.sleep(0.1)
        late.must("create_context", device=0)
        late.must("allocate", size=4 * MIB)
        assert NAMES[(await parking).state] == "PARKED"
        assert cuda_state(emulator, late.pid) == "CHECKPOINTED"
        assert in_use(emulator) == 0


async def test_a_process_that_starts_while_its_job_is_parked_makes_the_part_a_mixture(world: World, jobs: Jobs) -> None:
    await world.start()
    first = jobs(4 * MIB)
    await world.register("a", first.pid)
    await world.park("a")
    late = jobs(4 * MIB, env={"TIMESLICE_JOB_ID": "a"})
    part = await world.until("a", "LOCKED")
    assert part.resident
    assert NAMES[(await world.park("a")).state] == "PARKED"
    assert cuda_state(world.emulator, late.pid) == "CHECKPOINTED"
    assert NAMES[(await world.restore("a")).state] == "RUNNING"


async def test_a_process_that_dies_while_parked_is_let_go_and_the_rest_restored(world: World, jobs: Jobs) -> None:
    await world.start()
    first, second = jobs(4 * MIB), jobs(4 * MIB)
    await world.register("a", first.pid)
    await world.register("a", second.pid)
    await world.park("a")
    first.kill()
    part = await world.restore("a")
    assert (NAMES[part.state], part.processes) == ("RUNNING", 1)


async def test_a_job_whose_processes_all_die_while_parked_is_gone(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(4 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    job.kill()
    await world.until("a", "GONE")


async def test_a_lock_that_does_not_come_to_an_end_is_refused_and_the_job_goes_on(world: World, jobs: Jobs) -> None:
    await world.start()
    busy, idle = jobs(4 * MIB), jobs(4 * MIB)
    await world.register("a", busy.pid)
    await world.register("a", idle.pid)
    busy.must("launch_busy", milliseconds=4000)
    with failing(f"LockTimeout.*{busy.pid}") as refused:
        await world.park("a", lock_timeout_s=0.2)
    assert refused.value.retryable
    assert "collective" in refused.value.hint
    assert await world.state("a") == "RUNNING"
    assert cuda_state(world.emulator, idle.pid) == "RUNNING"
    assert idle.call("allocate", size=MIB)[0] == 0


async def test_processes_of_a_launch_are_moved_by_a_helper_that_has_their_job_file(world: World, jobs: Jobs) -> None:
    await world.start()
    launch = Launch()
    mine = {job.pid for job in (jobs(4 * MIB, prefix=launch.prefix) for _ in range(2))}
    for pid in mine:
        await world.register("a", pid)
    await world.park("a")
    files = JobFiles(procfs := ProcFs())
    [_] = (pid for pid in procfs.children(os.getpid()) - mine if files.key(pid) == launch.key)
    await world.restore("a")
    assert await world.state("a") == "RUNNING"


@pytest.mark.parametrize("within_s", [math.inf, math.nan, -1.0])
async def test_a_time_for_a_lock_that_is_none_is_as_long_as_the_node_lets_it_be(
    world: World, jobs: Jobs, within_s: float
) -> None:
    await world.start()
    await world.register("a", jobs(4 * MIB).pid)
    await world.park("a", lock_timeout_s=within_s)
    assert await world.state("a") == "PARKED"


@pytest.mark.parametrize(
    ("code", "reason"),
    [(801, "NotSupported"), (2, "NoMemory")],
)
async def test_a_checkpoint_that_fails_is_undone_and_named(world: World, jobs: Jobs, code: int, reason: str) -> None:
    await world.start()
    first, second = jobs(4 * MIB), jobs(4 * MIB)
    await world.register("a", first.pid)
    await world.register("a", second.pid)
    world.emulator.inject(Fault("checkpoint", pid=second.pid, rc=code))
    with failing(f"{reason}.*{second.pid}"):
        await world.park("a")
    part = (await world.parts())["a"]
    assert NAMES[part.state] == "RUNNING"
    assert part.fault.reason == reason
    assert cuda_state(world.emulator, first.pid) == cuda_state(world.emulator, second.pid) == "RUNNING"
    world.emulator.clear_faults()
    assert NAMES[(await world.park("a")).state] == "PARKED"


async def test_a_restore_that_fails_leaves_the_whole_part_parked(world: World, jobs: Jobs) -> None:
    await world.start()
    first, second = jobs(4 * MIB), jobs(4 * MIB)
    await world.register("a", first.pid)
    await world.register("a", second.pid)
    await world.park("a")
    world.emulator.inject(Fault("restore", pid=second.pid, rc=46))
    with failing("DeviceUnavailable"):
        await world.restore("a")
    assert await world.state("a") == "PARKED"
    assert in_use(world.emulator) == 0
    world.emulator.clear_faults()
    assert NAMES[(await world.restore("a")).state] == "RUNNING"


@pytest.mark.parametrize(
    ("call", "after", "ends"), [("checkpoint", "LOCKED", "PARKED"), ("restore", "PARKED", "LOCKED")]
)
async def test_a_copy_that_was_given_up_and_goes_on_is_noticed_when_it_has_ended(
    world: World, jobs: Jobs, call: str, after: str, ends: str
) -> None:
    await world.start(look_interval_s=0.2)
    job = jobs(MIB)
    pointer = job.must("allocate", size=4 * MIB)
    job.must("fill", pointer=pointer, size=4 * MIB, seed=5)
    await world.register("a", job.pid)
    step = world.park
    if call == "restore":
        await world.park("a")
        step = world.restore
    world.emulator.inject(Fault(call, nth=1, bandwidth=2 * MIB))  # longer than its time limit
    with failing(f"Stuck: {call} of process {job.pid} was given up"):
        await step("a")
    assert await world.state("a") == after
    await world.until("a", ends)
    assert NAMES[(await world.restore("a")).state] == "RUNNING"
    assert job.must("matches", pointer=pointer, size=4 * MIB, seed=5)


async def test_a_restore_that_spoils_a_process_names_it_and_says_what_to_do(world: World, jobs: Jobs) -> None:
    await world.start()
    first, second = jobs(4 * MIB), jobs(4 * MIB)
    await world.register("a", first.pid)
    await world.register("a", second.pid)
    await world.park("a")
    world.emulator.inject(Fault("restore", pid=second.pid, poison=True))
    with failing(f"Unrecoverable: process {second.pid}") as failed:
        await world.restore("a")
    assert f"end process {second.pid}" in failed.value.hint
    part = (await world.parts())["a"]
    assert NAMES[part.state] == "FAILED"
    assert not part.resident
    with failing("Unrecoverable"):
        await world.restore("a")
    second.kill()
    await world.until("a", "PARKED")
    assert NAMES[(await world.restore("a")).state] == "RUNNING"


async def test_free_device_memory_is_checked_before_a_restore_could_spoil_the_process(world: World, jobs: Jobs) -> None:
    await world.start(margins=Margins(cgroup=0, node=0, device=8 * MIB))
    job = jobs(36 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    intruder = jobs(36 * MIB)
    with failing(rf"DeviceMemory: .*38\.0 MiB.*process {intruder.pid} with") as refused:
        await world.restore("a")
    assert refused.value.retryable
    assert await world.state("a") == "PARKED"
    assert cuda_state(world.emulator, job.pid) == "CHECKPOINTED"
    intruder.kill()
    assert NAMES[(await world.restore("a")).state] == "RUNNING"


async def test_a_job_that_fills_the_device_is_restored_although_no_margin_is_left(world: World, jobs: Jobs) -> None:
    await world.start(margins=Margins(cgroup=0, node=0, device=64 * MIB))
    job = jobs(60 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    assert NAMES[(await world.restore("a")).state] == "RUNNING"


async def test_a_stopped_process_is_neither_parked_nor_restored(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(4 * MIB)
    await world.register("a", job.pid)
    os.kill(job.pid, signal.SIGSTOP)
    try:
        with failing(f"ProcessStopped: cannot park process {job.pid}"):
            await world.park("a")
    finally:
        os.kill(job.pid, signal.SIGCONT)
    await world.park("a")
    os.kill(job.pid, signal.SIGSTOP)
    try:
        with failing("ProcessStopped: cannot restore"):
            await world.restore("a")
    finally:
        os.kill(job.pid, signal.SIGCONT)
    assert NAMES[(await world.restore("a")).state] == "RUNNING"


async def test_more_device_memory_than_the_machine_has_to_spare_is_refused_with_the_numbers(
    world: World, jobs: Jobs
) -> None:
    await world.start(margins=Margins(cgroup=0, node=1 << 50, device=0))
    job = jobs(4 * MIB)
    await world.register("a", job.pid)
    with failing(r"HostMemory: parking needs 6\.0 MiB of host memory and .* to spare"):
        await world.park("a")
    assert await world.state("a") == "RUNNING"


@pytest.mark.parametrize(
    ("modes", "reason", "hint"),
    [({"mig": True}, "MigEnabled", "-mig 0"), ({"persistence": False}, "PersistenceOff", "-pm 1")],
)
async def test_a_device_in_a_mode_that_forbids_parking_is_named_before_anything_is_touched(
    world: World, jobs: Jobs, modes: dict[str, bool], reason: str, hint: str
) -> None:
    job = jobs(4 * MIB)
    world.emulator.set_device(0, **modes)
    await world.start()
    await world.register("a", job.pid)
    with failing(reason) as refused:
        await world.park("a")
    assert hint in refused.value.hint
    assert job.call("allocate", size=MIB)[0] == 0


async def test_a_client_of_mps_is_refused(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(4 * MIB, flags="mps")
    await world.register("a", job.pid)
    with failing("MpsClient") as refused:
        await world.park("a")
    assert "MPS" in refused.value.hint
    assert await world.state("a") == "RUNNING"


@pytest.mark.parametrize("options", [{"gpus": 2, "memory": 64 * MIB}])
class TestTwoDevices:
    GROUPS = ("g0", "g1")

    async def start(self, world: World) -> list[str]:
        ids = [device["uuid"] for device in world.emulator.snapshot()["devices"]]
        await world.start(groups={"g0": [ids[0]], "g1": [ids[1]]})
        return ids

    async def test_a_job_in_two_groups_has_two_parts_that_move_alone(self, world: World, jobs: Jobs) -> None:
        await self.start(world)
        first = jobs(4 * MIB, env={"CUDA_VISIBLE_DEVICES": "0"})
        second = jobs(4 * MIB, env={"CUDA_VISIBLE_DEVICES": "1"})
        for group_id in self.GROUPS:
            for job in (first, second):
                await world.register("a", job.pid, group_id=group_id)
        await world.park("a", group_id="g0")
        states = {key: NAMES[part.state] for key, part in (await world.parts()).items()}
        assert states == {"a/g0": "PARKED", "a/g1": "RUNNING"}
        assert cuda_state(world.emulator, second.pid) == "RUNNING"

    async def test_a_process_on_devices_of_two_groups_is_refused_and_named(self, world: World, jobs: Jobs) -> None:
        await self.start(world)
        job = jobs(4 * MIB)
        job.must("create_context", device=1)
        job.must("allocate", size=MIB)
        for group_id in self.GROUPS:
            await world.register("a", job.pid, group_id=group_id)
        with failing(f"ProcessInTwoGroups: process {job.pid} .* of group g1"):
            await world.park("a", group_id="g0")
        assert cuda_state(world.emulator, job.pid) == "RUNNING"

    async def test_a_process_on_devices_that_it_is_not_registered_for_is_refused(
        self, world: World, jobs: Jobs
    ) -> None:
        ids = [device["uuid"] for device in world.emulator.snapshot()["devices"]]
        await world.start()
        job = jobs(4 * MIB)
        job.must("create_context", device=1)
        job.must("allocate", size=MIB)
        await world.register("a", job.pid, device_ids=[ids[0]])
        with failing(f"ProcessOutsidePart.*{ids[1]}"):
            await world.park("a")

    async def test_a_hang_on_one_device_does_not_delay_a_job_on_another(self, world: World, jobs: Jobs) -> None:
        await self.start(world)
        first = jobs(4 * MIB, env={"CUDA_VISIBLE_DEVICES": "0"})
        second = jobs(4 * MIB, env={"CUDA_VISIBLE_DEVICES": "1"})
        await world.register("a", first.pid, group_id="g0")
        await world.register("b", second.pid, group_id="g1")
        world.emulator.inject(Fault("checkpoint", pid=first.pid, hang=True))
        hanging = asyncio.create_task(world.park("a"))
        await asyncio.sleep(0.2)
        await world.park("b")
        await world.restore("b")
        assert not hanging.done()
        world.emulator.clear_faults()
        with failing("Stuck"):
            await hanging
