"""Lock, checkpoint, restore, unlock: order, codes, bytes, memory, and what blocks meanwhile."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_emulator import Emulator, Fault
from gpu_emulator.puppet import Puppet, start_agent, start_job

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20
NOBODY = 65534

PATH_TO = {
    "RUNNING": [],
    "LOCKED": ["lock"],
    "CHECKPOINTED": ["lock", "checkpoint"],
    "RESTORED": ["lock", "checkpoint", "restore"],
}
STATE_NUMBER = {"RUNNING": 0, "LOCKED": 1, "CHECKPOINTED": 2, "RESTORED": 1}
LEGAL = {("RUNNING", "lock"), ("LOCKED", "checkpoint"), ("LOCKED", "unlock"), ("CHECKPOINTED", "restore")}
LEGAL |= {("RESTORED", "unlock"), ("RESTORED", "checkpoint")}


@pytest.fixture(scope="module")
def shared_agent(shared: Emulator) -> Iterator[Puppet]:
    with start_agent(shared) as agent:
        yield agent


def process(emulator: Emulator, pid: int) -> dict[str, Any]:
    return next(entry for entry in emulator.snapshot()["processes"] if entry["pid"] == pid)


def used(emulator: Emulator, device: int = 0) -> int:
    return int(emulator.snapshot()["devices"][device]["used"])


def anonymous_memory(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
@pytest.mark.parametrize("state", list(PATH_TO))
def test_a_call_out_of_order_is_an_illegal_state_and_changes_nothing(
    shared: Emulator, shared_agent: Puppet, state: str, call: str
) -> None:
    with start_job(shared, 3 * MIB) as job:
        for step in PATH_TO[state]:
            shared_agent.must(step, pid=job.pid)
        if (state, call) in LEGAL:
            assert shared_agent.call(call, pid=job.pid)[0] == 0
        else:
            assert shared_agent.call(call, pid=job.pid)[0] == 401
            assert shared_agent.must("get_state", pid=job.pid) == STATE_NUMBER[state]


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock"])
def test_a_failed_process_can_only_be_killed(shared: Emulator, shared_agent: Puppet, call: str) -> None:
    with start_job(shared, 3 * MIB, name="doomed") as job:
        shared_agent.must("lock", pid=job.pid)
        shared.inject(Fault("checkpoint", pid="doomed", nth=1, fail_state=True))
        assert shared_agent.call("checkpoint", pid=job.pid)[0] == 999
        assert shared_agent.must("get_state", pid=job.pid) == 3
        assert shared_agent.call(call, pid=job.pid)[0] == 401


def test_bytes_and_addresses_survive_several_rounds(emulator: Emulator, agent: Puppet) -> None:
    sizes = [37 * MIB + 5, 900, 2 * MIB, 11 * MIB, 4096]
    with start_job(emulator) as job:
        pointers = [job.must("allocate", size=size) for size in sizes]
        for seed, (pointer, size) in enumerate(zip(pointers, sizes, strict=True)):
            job.must("fill", pointer=pointer, size=size, seed=seed)
        for _ in range(3):
            for step in PATH_TO["RESTORED"] + ["unlock"]:
                agent.must(step, pid=job.pid)
            for seed, (pointer, size) in enumerate(zip(pointers, sizes, strict=True)):
                assert job.must("matches", pointer=pointer, size=size, seed=seed)


def test_another_job_computes_where_the_parked_one_was(emulator: Emulator, agent: Puppet) -> None:
    with start_job(emulator, 200 * MIB) as first:
        agent.must("lock", pid=first.pid)
        agent.must("checkpoint", pid=first.pid)
        with start_job(emulator, 200 * MIB):
            assert used(emulator) == 202 * MIB
        for step in ("restore", "unlock"):
            agent.must(step, pid=first.pid)
        pointer = first.must("allocate", size=MIB)
        first.must("free", pointer=pointer)


def test_parked_bytes_are_host_memory_of_the_target_until_the_restore(emulator: Emulator, agent: Puppet) -> None:
    with start_job(emulator, 64 * MIB) as job:
        before = anonymous_memory(job.pid)
        agent.must("lock", pid=job.pid)
        agent.must("checkpoint", pid=job.pid)
        assert anonymous_memory(job.pid) - before > 63 * MIB
        assert used(emulator) == 0
        agent.must("restore", pid=job.pid)
        assert anonymous_memory(job.pid) - before < 8 * MIB
        assert used(emulator) == 66 * MIB


def test_calls_of_a_locked_process_wait_and_go_on_after_the_unlock(job: Puppet, agent: Puppet) -> None:
    agent.must("lock", pid=job.pid)
    waiting = job.begin("allocate", size=4 * MIB)
    also_waiting = job.begin("device_count", apart=True)
    assert job.is_blocked(waiting)
    agent.must("checkpoint", pid=job.pid)
    agent.must("restore", pid=job.pid)
    assert job.is_blocked(waiting)
    assert job.is_blocked(also_waiting, 0.01)
    agent.must("unlock", pid=job.pid)
    assert job.finish(waiting)[0] == 0
    assert job.finish(also_waiting) == (0, 1)


def test_host_threads_of_a_locked_process_go_on(job: Puppet, agent: Puppet) -> None:
    agent.must("lock", pid=job.pid)
    assert job.must("own_pid") == job.pid


def test_a_lock_waits_for_launched_work(job: Puppet, agent: Puppet) -> None:
    job.must("launch_busy", milliseconds=300)
    began = time.monotonic()
    agent.must("lock", pid=job.pid)
    assert time.monotonic() - began > 0.2


def test_a_lock_that_runs_out_of_time_leaves_the_process_running(job: Puppet, agent: Puppet) -> None:
    job.must("launch_busy", milliseconds=60_000)
    began = time.monotonic()
    assert agent.call("lock", pid=job.pid, timeout_ms=200)[0] == 600
    assert 0.2 <= time.monotonic() - began < 10
    assert agent.must("get_state", pid=job.pid) == 0
    assert job.call("allocate", size=MIB)[0] == 0


def test_a_second_caller_is_refused_while_a_lock_is_under_way(emulator: Emulator, job: Puppet, agent: Puppet) -> None:
    job.must("launch_busy", milliseconds=400)
    first = agent.begin("lock", pid=job.pid, apart=True)
    assert agent.is_blocked(first, 0.05)
    assert agent.call("lock", pid=job.pid)[0] == 401
    assert agent.must("get_state", pid=job.pid) == 0
    assert agent.finish(first)[0] == 0


def test_a_lock_whose_caller_is_killed_is_taken_back(emulator: Emulator, job: Puppet, agent: Puppet) -> None:
    job.must("launch_busy", milliseconds=60_000)
    with start_agent(emulator) as victim:
        waiting = victim.begin("lock", pid=job.pid)
        assert victim.is_blocked(waiting, 0.05)
        assert job.is_blocked(job.begin("device_count", apart=True), 0.05)
    assert job.call("device_count") == (0, 1)
    assert agent.must("get_state", pid=job.pid) == 0


def test_a_checkpoint_goes_on_when_its_caller_is_killed(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(bandwidth_out=100 * MIB)
    with start_job(emulator, 40 * MIB) as job, start_agent(emulator) as agent:
        with start_agent(emulator) as victim:
            victim.must("lock", pid=job.pid)
            copying = victim.begin("checkpoint", pid=job.pid)
            assert victim.is_blocked(copying, 0.05)
        assert agent.call("checkpoint", pid=job.pid)[0] == 401
        deadline = time.monotonic() + 5
        while agent.must("get_state", pid=job.pid) != 2:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        agent.must("restore", pid=job.pid)


@pytest.mark.parametrize("call", ["lock", "checkpoint", "restore", "unlock", "get_state", "get_restore_tid"])
def test_a_process_that_does_not_exist_or_does_not_use_cuda_is_an_invalid_value(
    shared: Emulator, shared_agent: Puppet, call: str
) -> None:
    assert shared_agent.call(call, pid=2**22 + 5)[0] == 1
    assert shared_agent.call(call, pid=os.getpid())[0] == 1


def test_a_thread_id_is_no_process(job: Puppet, agent: Puppet) -> None:
    tid = agent.must("get_restore_tid", pid=job.pid)
    assert tid != job.pid
    assert Path(f"/proc/{job.pid}/task/{tid}").exists()
    assert agent.call("lock", pid=tid)[0] == 1


def test_a_target_without_a_context_is_not_initialised(shared: Emulator, shared_agent: Puppet) -> None:
    with start_agent(shared) as job:
        for call in ("lock", "get_state", "get_restore_tid"):
            assert shared_agent.call(call, pid=job.pid)[0] == 3


@pytest.mark.parametrize(
    ("flag", "call", "code"),
    [
        ("uvm", "checkpoint", 801),
        ("ipc", "checkpoint", 801),
        ("mps", "lock", 805),
        ("capture", "lock", 900),
    ],
)
def test_unsupported_targets_are_refused(
    shared: Emulator, shared_agent: Puppet, flag: str, call: str, code: int
) -> None:
    with start_job(shared, MIB, flags=flag) as job:
        if call == "checkpoint":
            shared_agent.must("lock", pid=job.pid)
        assert shared_agent.call(call, pid=job.pid)[0] == code
        shared.set_flags(job.pid, "")
        assert shared_agent.call(call, pid=job.pid)[0] == 0


def test_a_gpu_in_mig_mode_refuses_the_checkpoint_as_out_of_memory(
    emulator: Emulator, job: Puppet, agent: Puppet
) -> None:
    emulator.set_device(0, mig=True)
    agent.must("lock", pid=job.pid)
    assert agent.call("checkpoint", pid=job.pid)[0] == 2
    assert agent.must("get_state", pid=job.pid) == 1
    agent.must("unlock", pid=job.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user_is_not_permitted_and_root_is(shared: Emulator, shared_agent: Puppet) -> None:
    folder = shared.socket_path.parent
    folder.chmod(0o755)
    # By a relative path, since another user may be barred from a folder above, be it the root of a chroot.
    relative = {"GPU_EMULATOR_SOCKET": shared.socket_path.name}
    with start_job(shared, MIB) as job, Puppet(shared, cwd=folder, env=relative) as stranger:
        stranger.must("become_user", user=NOBODY)
        stranger.must("init")
        assert stranger.call("lock", pid=job.pid)[0] == 800
        stranger.must("create_context", device=0)
        shared_agent.must("lock", pid=stranger.pid)


def test_a_restore_without_room_poisons_the_process(emulator: Emulator, agent: Puppet) -> None:
    with start_job(emulator, 150 * MIB) as job:
        agent.must("lock", pid=job.pid)
        agent.must("checkpoint", pid=job.pid)
        with start_job(emulator, 150 * MIB):
            assert agent.call("restore", pid=job.pid)[0] == 2
        assert used(emulator) == 0
        assert agent.call("restore", pid=job.pid)[0] == 304
        assert agent.call("unlock", pid=job.pid)[0] == 401
        assert agent.must("get_state", pid=job.pid) == 2
        assert process(emulator, job.pid)["poisoned"]


def test_a_process_is_restored_on_the_device_that_the_map_names(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(gpus=3, memory=64 * MIB)
    uuids = [device["uuid"].removeprefix("GPU-").replace("-", "") for device in emulator.snapshot()["devices"]]
    with start_job(emulator) as job, start_agent(emulator) as agent:
        pointer = job.must("allocate", size=5 * MIB)
        job.must("fill", pointer=pointer, size=5 * MIB, seed=9)
        for step in ("lock", "checkpoint"):
            agent.must(step, pid=job.pid)
        assert agent.call("restore", pid=job.pid, pairs=[[uuids[1], uuids[2]]])[0] == 1
        assert agent.call("restore", pid=job.pid, pairs=[[uuids[0], "00" * 16]])[0] == 1
        assert agent.call("restore", pid=job.pid, pairs=[[uuids[0], uuids[2]], [uuids[2], uuids[2]]])[0] == 1
        agent.must("restore", pid=job.pid, pairs=[[uuids[0], uuids[2]], [uuids[2], uuids[0]]])
        agent.must("unlock", pid=job.pid)
        assert [used(emulator, device) for device in range(3)] == [0, 0, 8 * MIB]
        assert job.must("matches", pointer=pointer, size=5 * MIB, seed=9)
        assert job.must("device_uuid", device=0) == uuids[2]
        job.must("free", pointer=pointer)
        assert used(emulator, 2) == 2 * MIB


def test_a_process_on_two_devices_is_parked_on_both(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(gpus=2, memory=64 * MIB)
    with start_job(emulator, 4 * MIB) as job, start_agent(emulator) as agent:
        job.must("create_context", device=1)
        pointer = job.must("allocate", size=6 * MIB)
        job.must("fill", pointer=pointer, size=6 * MIB, seed=4)
        for step in ("lock", "checkpoint"):
            agent.must(step, pid=job.pid)
        assert [used(emulator, device) for device in range(2)] == [0, 0]
        for step in ("restore", "unlock"):
            agent.must(step, pid=job.pid)
        assert [used(emulator, device) for device in range(2)] == [6 * MIB, 8 * MIB]
        assert job.must("matches", pointer=pointer, size=6 * MIB, seed=4)


def test_a_target_that_dies_while_a_caller_waits_gives_an_unknown_error(job: Puppet, agent: Puppet) -> None:
    job.must("launch_busy", milliseconds=60_000)
    waiting = agent.begin("lock", pid=job.pid)
    assert agent.is_blocked(waiting, 0.05)
    job.kill()
    assert agent.finish(waiting)[0] == 999
    assert agent.call("lock", pid=job.pid)[0] == 1


def test_bandwidth_limits_pace_checkpoint_and_restore(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(bandwidth_out=200 * MIB, bandwidth_in=400 * MIB)
    with start_job(emulator, 80 * MIB) as job, start_agent(emulator) as agent:
        agent.must("lock", pid=job.pid)
        began = time.monotonic()
        agent.must("checkpoint", pid=job.pid)
        parked = time.monotonic()
        agent.must("restore", pid=job.pid)
        restored = time.monotonic()
    assert 0.4 <= parked - began < 10
    assert 0.2 <= restored - parked < 10


def test_device_nodes_are_open_while_a_process_uses_the_device(emulator: Emulator, job: Puppet, agent: Puppet) -> None:
    def open_nodes(pid: int) -> set[str]:
        links = [link.readlink() for link in Path(f"/proc/{pid}/fd").iterdir()]
        return {link.name for link in links if link.parent == emulator.dev_root}

    assert open_nodes(job.pid) == {"nvidiactl", "nvidia0"}
    assert open_nodes(agent.pid) == {"nvidiactl"}
    agent.must("lock", pid=job.pid)
    agent.must("checkpoint", pid=job.pid)
    assert open_nodes(job.pid) == set()
    agent.must("restore", pid=job.pid)
    assert open_nodes(job.pid) == {"nvidiactl", "nvidia0"}


def test_a_lock_that_waits_does_not_hold_up_the_lock_of_another_process(
    emulator: Emulator, job: Puppet, agent: Puppet
) -> None:
    with start_job(emulator, MIB) as other:
        job.must("launch_busy", milliseconds=60_000)
        waiting = agent.begin("lock", pid=job.pid, apart=True)
        agent.must("lock", pid=other.pid)
        agent.must("unlock", pid=other.pid)
        assert agent.is_blocked(waiting, 0.01)


def test_threads_that_allocate_and_copy_are_not_lost_in_repeated_rounds(emulator: Emulator, agent: Puppet) -> None:
    with start_job(emulator, 8 * MIB) as job:
        stop = threading.Event()

        def park_and_restore() -> None:
            while not stop.is_set():
                for step in PATH_TO["RESTORED"] + ["unlock"]:
                    agent.must(step, pid=job.pid)

        parking = threading.Thread(target=park_and_restore)
        parking.start()
        try:
            for seed in range(40):
                pointer = job.must("allocate", size=2 * MIB + seed)
                job.must("fill", pointer=pointer, size=2 * MIB + seed, seed=seed)
                assert job.must("matches", pointer=pointer, size=2 * MIB + seed, seed=seed)
                job.must("free", pointer=pointer)
        finally:
            stop.set()
            parking.join(20)
