"""The CUDA backend and its helper, against the emulated driver and its scripted faults."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest
import pytest_asyncio
from gpu_emulator.emulator import Emulator
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from launched_job import Launch
from node_world import LIMITS, MIB, cuda_state
from timeslice_driver.backends import helper_pool
from timeslice_driver.backends.base import Target, TargetState
from timeslice_driver.backends.cuda import CudaBackend
from timeslice_driver.backends.cuda_command import CommandCalls, _result
from timeslice_driver.backends.cuda_driver import DriverCalls
from timeslice_driver.backends.helper_pool import HelperPool
from timeslice_driver.job_files import JobFiles
from timeslice_driver.processes import ProcessId, ProcFs

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
procfs = ProcFs()
job_files = JobFiles(procfs)
PATIENT = replace(LIMITS, query_s=20.0, lock_slack_s=20.0, unlock_s=20.0, copy_base_s=20.0)


def driver_calls(emulator: Emulator) -> DriverCalls:
    return DriverCalls(str(emulator.libraries / "libcuda.so.1"), job_files, start_s=LIMITS.start_s)


@pytest_asyncio.fixture(params=["driver", "command"])
async def backend(request: pytest.FixtureRequest, emulator: Emulator) -> AsyncIterator[CudaBackend]:
    calls = driver_calls(emulator) if request.param == "driver" else CommandCalls()
    limits = LIMITS if request.param == "driver" else PATIENT  # each call of the command starts a program
    made = CudaBackend(calls, alive=procfs.alive, limits=limits)
    await made.open()
    assert made.capabilities().unavailable is None
    yield made
    await made.close()


@pytest_asyncio.fixture
async def driver(emulator: Emulator) -> AsyncIterator[CudaBackend]:
    made = CudaBackend(driver_calls(emulator), alive=procfs.alive, limits=LIMITS)
    await made.open()
    yield made
    await made.close()


def target(job: Puppet, **fields: Any) -> Target:
    process = procfs.identity(job.pid)
    assert process
    return Target(process, size=4 * MIB, **fields)


def launched(jobs: Jobs, launch: Launch) -> Target:
    job = jobs(2 * MIB, prefix=launch.prefix)
    return target(job, job_file=job_files.key(job.pid))


async def test_every_step_leads_to_the_next_state_through_driver_and_command_alike(
    backend: CudaBackend, jobs: Jobs
) -> None:
    one, two = target(jobs(2 * MIB)), target(jobs(2 * MIB))
    both = [one, two]
    expected = [
        (await backend.lock(both, timeout_s=2), TargetState.LOCKED),
        (await backend.checkpoint(both), TargetState.CHECKPOINTED),
        (await backend.restore(both), TargetState.LOCKED),
        (await backend.unlock(both), TargetState.RUNNING),
    ]
    for outcome, state in expected:
        assert outcome.faults == {}
        assert outcome.states == {one.process: state, two.process: state}
        assert outcome.seconds > 0


async def test_a_step_that_is_repeated_counts_as_done(driver: CudaBackend, jobs: Jobs) -> None:
    job = target(jobs(2 * MIB))
    await driver.lock([job], timeout_s=2)
    for _ in range(2):
        outcome = await driver.checkpoint([job])
        assert (outcome.states[job.process], outcome.faults) == (TargetState.CHECKPOINTED, {})


async def test_a_step_out_of_order_is_refused_with_the_true_state(driver: CudaBackend, jobs: Jobs) -> None:
    job = target(jobs(2 * MIB))
    outcome = await driver.checkpoint([job])
    assert outcome.states[job.process] is TargetState.RUNNING
    assert outcome.faults[job.process].reason == "IllegalState"


async def test_a_lock_ends_with_its_time_limit(backend: CudaBackend, jobs: Jobs) -> None:
    busy = jobs(2 * MIB)
    busy.must("launch_busy", milliseconds=8000)
    began = time.monotonic()
    job = target(busy)
    outcome = await backend.lock([job], timeout_s=0.2)
    assert time.monotonic() - began < 5
    assert outcome.states[job.process] is TargetState.RUNNING
    assert (outcome.faults[job.process].reason, outcome.faults[job.process].retryable) == ("LockTimeout", True)


async def test_processes_without_a_context_and_dead_ones_are_told_apart(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    with Puppet(emulator) as asker:
        asker.must("init")
        bare = procfs.identity(asker.pid)
        me = procfs.identity(os.getpid())
        job = target(jobs(2 * MIB))
        gone = ProcessId(job.process.pid, job.process.start_time + 1)  # its number was given to another
        assert bare
        assert me
        states = await driver.probe([bare, me, job.process, gone])
    assert states[me] is TargetState.NOTHING
    assert states[job.process] is TargetState.RUNNING
    assert states[gone] is TargetState.GONE
    assert states[bare] in {TargetState.NOTHING, TargetState.RUNNING}
    outcome = await driver.lock([Target(gone), Target(me)], timeout_s=1)
    assert outcome.states == {gone: TargetState.GONE, me: TargetState.NOTHING}
    assert outcome.faults == {}
    assert cuda_state(emulator, job.process.pid) == "RUNNING"


async def test_a_target_that_dies_in_a_step_is_gone_and_no_fault(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    job, other = target(jobs(2 * MIB)), target(jobs(2 * MIB))
    await driver.lock([job, other], timeout_s=2)
    emulator.inject(Fault("checkpoint", pid=job.process.pid, kill_target=True))
    outcome = await driver.checkpoint([job, other])
    assert outcome.states == {job.process: TargetState.GONE, other.process: TargetState.CHECKPOINTED}
    assert outcome.faults == {}


async def test_a_target_that_the_driver_gives_up_is_unrecoverable(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    job = target(jobs(2 * MIB))
    await driver.lock([job], timeout_s=2)
    emulator.inject(Fault("checkpoint", fail_state=True))
    outcome = await driver.checkpoint([job])
    assert outcome.states[job.process] is TargetState.FAILED
    assert outcome.faults[job.process].reason == "Unrecoverable"
    assert outcome.spoilt == {job.process}


async def test_a_call_that_hangs_has_its_helper_killed_and_the_truth_asked_of_a_new_one(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    job = target(jobs(2 * MIB))
    (before,) = driver.pids
    emulator.inject(Fault("lock", hang=True, nth=1))
    began = time.monotonic()
    outcome = await driver.lock([job], timeout_s=0.3)
    assert time.monotonic() - began < 5
    assert outcome.states[job.process] is TargetState.RUNNING
    fault = outcome.faults[job.process]
    assert (fault.reason, fault.retryable) == ("Stuck", True)
    assert "the driver calls it running" in fault.message
    assert before not in driver.pids
    assert not procfs.stat(before) or procfs.stat(before).ended  # type: ignore[union-attr]
    assert procfs.alive(job.process)
    assert (await driver.lock([job], timeout_s=1)).faults == {}


async def test_a_call_that_was_done_before_it_hung_counts_as_done(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    job = target(jobs(2 * MIB))
    await driver.lock([job], timeout_s=1)
    emulator.inject(Fault("checkpoint", hang=True, after=True))
    outcome = await driver.checkpoint([job])
    assert (outcome.states[job.process], outcome.faults) == (TargetState.CHECKPOINTED, {})


async def test_a_process_whose_state_cannot_be_asked_either_is_stuck_and_says_so(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    job = target(jobs(2 * MIB))
    emulator.inject(Fault("lock", hang=True))
    emulator.inject(Fault("get_state", hang=True))
    outcome = await driver.lock([job], timeout_s=0.2)
    assert outcome.states[job.process] is TargetState.UNKNOWN
    assert "cannot be found out" in outcome.faults[job.process].message
    emulator.clear_faults()
    assert (await driver.states([job.process]))[job.process] is TargetState.RUNNING


async def test_a_driver_that_crashes_takes_only_the_helper_with_it(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    job = target(jobs(2 * MIB))
    emulator.inject(Fault("lock", crash_caller=True, nth=1))
    outcome = await driver.lock([job], timeout_s=2)
    assert outcome.states[job.process] is TargetState.RUNNING
    assert outcome.faults[job.process].reason == "Stuck"
    assert (await driver.lock([job], timeout_s=2)).faults == {}


async def test_a_helper_that_was_killed_while_idle_is_replaced(driver: CudaBackend, jobs: Jobs) -> None:
    job = target(jobs(2 * MIB))
    (pid,) = driver.pids
    os.kill(pid, signal.SIGKILL)
    await asyncio.sleep(0.1)
    assert (await driver.lock([job], timeout_s=2)).faults == {}
    assert pid not in driver.pids


async def test_no_helper_outlives_the_backend(emulator: Emulator) -> None:
    made = CudaBackend(driver_calls(emulator), alive=procfs.alive, limits=LIMITS)
    await made.open()
    (pid,) = made.pids
    await made.close()
    assert procfs.stat(pid) is None


async def test_processes_of_one_job_file_go_one_at_a_time_and_their_helper_has_it_too(
    driver: CudaBackend, emulator: Emulator, jobs: Jobs
) -> None:
    launch = Launch()
    one, two = (launched(jobs, launch) for _ in range(2))
    assert one.job_file == two.job_file == launch.key
    await driver.lock([one, two], timeout_s=2)
    emulator.inject(Fault("checkpoint", delay_ms=500))
    outcome = await driver.checkpoint([one, two])
    assert outcome.faults == {}
    assert outcome.seconds >= 1.0
    assert {job_files.key(pid) for pid in driver.pids} == {"", launch.key}
    side_by_side = [target(jobs(2 * MIB)) for _ in range(2)]
    await driver.lock(side_by_side, timeout_s=2)
    assert (await driver.checkpoint(side_by_side)).seconds < 1.0


async def test_helpers_of_job_files_end_when_others_had_their_turns_since(
    emulator: Emulator, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(helper_pool, "_KEPT", 2)
    pool = HelperPool(str(emulator.libraries / "libcuda.so.1"), job_files, start_s=LIMITS.start_s)
    a, b, c = (launched(jobs, Launch()) for _ in range(3))
    pids = []
    for each in (None, a, b, a, c):
        async with pool.lend(each.job_file, of=each.process.pid) if each else pool.lend() as helper:
            pids.append(helper.pid)
    plain, first, second, again, third = pids
    assert again == first
    assert pool.pids == {plain, first, third}
    assert procfs.stat(second) is None
    await pool.close()


async def test_a_job_file_that_is_another_by_now_is_given_to_no_helper(driver: CudaBackend, jobs: Jobs) -> None:
    job = replace(launched(jobs, Launch()), job_file="1:2")
    outcome = await driver.lock([job], timeout_s=2)
    assert "another job file by now" in outcome.faults[job.process].message
    assert len(driver.pids) == 1


@pytest.mark.parametrize("failure", [BlockingIOError(errno.EAGAIN, "no more processes"), OSError(errno.E2BIG, "long")])
async def test_where_no_process_can_be_started_a_step_fails_and_the_next_one_may_not(
    backend: CudaBackend, jobs: Jobs, monkeypatch: pytest.MonkeyPatch, failure: OSError
) -> None:
    job = launched(jobs, Launch())

    def fail(*_: object, **__: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", fail)
        outcome = await backend.lock([job], timeout_s=2)
    assert outcome.faults[job.process].reason == "Stuck"
    assert "be started" in outcome.faults[job.process].message
    assert (await backend.lock([job], timeout_s=2)).faults == {}


@pytest.mark.parametrize("library", ["/nowhere/libcuda.so.1", "/nowhere/\udcff.so"], ids=["absent", "no text"])
async def test_a_library_that_is_not_there_is_named_with_what_to_do(library: str) -> None:
    calls = DriverCalls(library, job_files, start_s=10)
    fault = (await calls.open()).unavailable
    await calls.close()
    assert fault
    assert fault.reason == "DriverMissing"
    assert library in fault.message


async def test_a_command_that_is_not_there_is_named_with_what_to_do() -> None:
    fault = (await CommandCalls("/nowhere/cuda-checkpoint").open()).unavailable
    assert fault
    assert fault.reason == "CommandMissing"


@pytest.mark.parametrize("options", [{"driver_version": "560.35"}])
async def test_a_driver_without_the_functions_is_told_and_the_command_stands_in(emulator: Emulator, jobs: Jobs) -> None:
    calls = driver_calls(emulator)
    fault = (await calls.open()).unavailable
    await calls.close()
    assert fault
    assert fault.reason == "DriverTooOld"
    assert "cuCheckpointProcess" in fault.message
    command = CudaBackend(CommandCalls(), alive=procfs.alive, limits=PATIENT)
    await command.open()
    job = target(jobs(2 * MIB))
    assert (await command.lock([job], timeout_s=2)).states == {job.process: TargetState.LOCKED}


@pytest.mark.parametrize("options", [{"driver_version": "550.54"}])
async def test_a_driver_that_can_only_toggle_is_refused(emulator: Emulator) -> None:
    fault = (await CommandCalls().open()).unavailable
    assert fault
    assert fault.reason == "DriverTooOld"


async def test_a_driver_that_does_not_initialise_is_told_with_its_code(emulator: Emulator) -> None:
    emulator.inject(Fault("init", rc=100))
    calls = driver_calls(emulator)
    fault = (await calls.open()).unavailable
    await calls.close()
    assert fault
    assert fault.message == "cuInit failed with 100 NO_DEVICE"


async def test_a_driver_that_hangs_at_its_start_is_given_up(emulator: Emulator) -> None:
    emulator.inject(Fault("init", hang=True))
    calls = DriverCalls(str(emulator.libraries / "libcuda.so.1"), job_files, start_s=0.7)
    fault = (await calls.open()).unavailable
    await calls.close()
    assert fault
    assert "did not get ready within 0.7 s" in fault.message


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        (1, "Could not lock on process ID 7: device not ready", 600),  # versions that always exit with 1
        (1, "Could not lock on process ID 7: invalid argument", 1),
        (1, "", 1),
        (2, "", 2),
        (88, "", 600),
        (145, "", 401),
        (33, "", 801),
        (231, "", 999),
        (250, "", 250),
        (-9, "", 999),  # killed
    ],
)
def test_the_exit_status_of_the_command_has_only_eight_bits_of_the_code(status: int, words: str, code: int) -> None:
    assert _result(status, words) == code


async def test_an_estimate_is_a_rule_of_thumb_from_bytes(driver: CudaBackend) -> None:
    estimate = driver.estimate([Target(ProcessId(1, 1), size=24 << 30), Target(ProcessId(2, 2), size=24 << 30)])
    assert estimate.host_bytes == 48 << 30
    assert 10 < estimate.park_s < 30
    assert 5 < estimate.restore_s < 10
