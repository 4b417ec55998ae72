"""Registration and the service on the socket: good input, bad input, and ends."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World, cuda_state, failing
from timeslice_api.errors import (
    ConfigError,
    GroupNotFound,
    InvalidRequest,
    JobNotFound,
    StoreFailed,
)
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_driver.node import Node

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]


async def test_registering_twice_and_from_two_ranks_is_one_part(world: World, jobs: Jobs) -> None:
    await world.start()
    first, second = jobs(2 * MIB), jobs(2 * MIB)
    for pid in (first.pid, first.pid, second.pid):
        part = await world.register("a", pid)
    assert part.processes == 2
    assert list(await world.parts()) == ["a"]


@pytest.mark.parametrize("options", [{"gpus": 2, "memory": 64 * MIB}])
async def test_a_part_covers_the_devices_it_was_registered_for(world: World, jobs: Jobs) -> None:
    await world.start()
    ids = [device["uuid"] for device in world.emulator.snapshot()["devices"]]
    job = jobs(2 * MIB)
    assert list((await world.register("a", job.pid, device_ids=[ids[1]])).device_ids) == [ids[1]]
    assert list((await world.register("a", job.pid, device_ids=[ids[0]])).device_ids) == ids
    assert list((await world.register("b", os.getpid())).device_ids) == ids


async def test_an_unknown_group_is_refused_with_the_known_ones(world: World) -> None:
    await world.start()
    with pytest.raises(GroupNotFound, match="no group 'nope' on this node; known: default"):
        await world.register("a", os.getpid(), group_id="nope")
    assert await world.parts() == {}


@pytest.mark.parametrize(
    ("job_id", "message"),
    [("", "job_id is empty"), ("x" * 10_000, "job_id has 10000 characters"), ("a b", "job_id 'a b' is not a name")],
)
async def test_a_job_id_that_is_none_is_refused(world: World, job_id: str, message: str) -> None:
    await world.start()
    with pytest.raises(InvalidRequest, match=message):
        await world.register(job_id, os.getpid())
    with pytest.raises(InvalidRequest, match=message):
        await world.park(job_id)


@pytest.mark.parametrize("method", ["Register", "Unregister", "Snapshot", "ListJobs", "WatchJobs"])
async def test_bytes_that_are_no_message_are_the_callers_fault(world: World, method: str) -> None:
    await world.start()
    async with grpc.aio.insecure_channel(f"unix:{world.folder / 'node.sock'}") as channel:
        make: Any = channel.unary_stream if method == "WatchJobs" else channel.unary_unary
        call = make(f"/timeslice.v1alpha1.SnapshotAgent/{method}")(b"\xff\xff\xff", timeout=10)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "not a message of this method" in await call.details()
        nobody = channel.unary_unary("/timeslice.v1alpha1.SnapshotAgent/Steal")(b"", timeout=10)
        assert await nobody.code() is grpc.StatusCode.UNIMPLEMENTED
    assert await world.parts() == {}  # and the next one is served


async def test_a_pid_that_is_no_process_is_refused(world: World) -> None:
    await world.start()
    for pid in (0, 2**22 + 7):
        with pytest.raises(InvalidRequest, match=f"pid {pid} is no process"):
            await world.register("a", pid)


async def test_a_thread_is_not_taken_for_a_process(world: World) -> None:
    await world.start()
    numbers, done = [], threading.Event()
    thread = threading.Thread(target=lambda: (numbers.append(threading.get_native_id()), done.wait(20)))
    thread.start()
    try:
        while not numbers:
            await asyncio.sleep(0.01)
        with pytest.raises(InvalidRequest, match="is no process") as error:
            await world.register("a", numbers[0])
        assert "thread" in error.value.hint
    finally:
        done.set()
        thread.join()


async def test_a_process_belongs_to_one_job(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    with pytest.raises(InvalidRequest, match=f"process {job.pid} is registered for job a in group default already"):
        await world.register("b", job.pid)


async def test_a_device_that_is_not_of_the_group_is_refused(world: World) -> None:
    await world.start()
    with pytest.raises(InvalidRequest, match="'GPU-x' is not in group default"):
        await world.register("a", os.getpid(), device_ids=["GPU-x"])


async def test_unregistering_puts_back_what_is_parked(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    await world.unregister("a", job.pid)
    assert cuda_state(world.emulator, job.pid) == "RUNNING"
    assert await world.parts() == {}
    await world.unregister("a", job.pid)  # safe to repeat


async def test_unregistering_one_of_two_processes_keeps_the_other(world: World, jobs: Jobs) -> None:
    await world.start()
    first, second = jobs(2 * MIB), jobs(2 * MIB)
    await world.register("a", first.pid)
    await world.register("a", second.pid)
    await world.unregister("a", first.pid)
    part = await world.park("a")
    assert part.processes == 1
    assert cuda_state(world.emulator, first.pid) == "RUNNING"


async def test_a_job_that_is_not_there_is_refused_with_those_that_are(world: World) -> None:
    await world.start()
    await world.register("there", os.getpid())
    with pytest.raises(JobNotFound, match="no job 'a' on this node; known: there"):
        await world.park("a")
    with pytest.raises(GroupNotFound, match="known: default"):
        await world.restore("there", group_id="nope")


async def test_a_part_ends_when_its_last_process_does(world: World) -> None:
    await world.start()
    process = await asyncio.create_subprocess_exec("sleep", "60")
    await world.register("a", process.pid)
    process.kill()
    await world.until("a", "GONE")
    await process.wait()


async def test_children_that_nobody_had_seen_keep_a_part_alive(world: World) -> None:
    await world.start(look_interval_s=60)
    command = (
        "sleep 1; sleep 60 >/dev/null & echo $!"  # the shell registered is gone before its child was ever looked at
    )
    shell = await asyncio.create_subprocess_exec(
        "sh", "-c", command, stdout=asyncio.subprocess.PIPE, env={**os.environ, "TIMESLICE_JOB_ID": "a"}
    )
    await world.register("a", shell.pid)
    assert shell.stdout
    child = int(await shell.stdout.readline())
    await shell.wait()
    await asyncio.sleep(0.3)
    assert (await world.parts())["a"].processes == 1
    os.kill(child, 9)
    await world.until("a", "GONE")


async def test_a_watcher_hears_of_every_change(world: World, jobs: Jobs) -> None:
    await world.start()
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    seen = []
    watch = world.agent.WatchJobs(pb.WatchJobsRequest())
    async with asyncio.timeout(10):
        seen.append(NAMES[(await watch.read()).parts[0].state])
        await world.park("a")
        while seen[-1] != "PARKED":
            listed = await watch.read()
            seen.append(NAMES[listed.parts[0].state])
    assert seen[0] == "RUNNING"
    assert listed.devices[0].memory_bytes == 64 * MIB
    watch.cancel()


async def test_a_full_disk_under_the_journal_refuses_before_anything_is_touched(
    world: World, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    job, late = jobs(2 * MIB), jobs(2 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    await world.restore("a")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("timeslice_driver.whole_files.os.fsync", full)
    with pytest.raises(StoreFailed, match="No space left") as refused:
        await world.register("b", late.pid)
    assert refused.value.retryable
    assert list(await world.parts()) == ["a"]
    job.must("allocate", size=2 * MIB)  # more than the journal knows of
    with failing("JournalFull") as failed:
        await world.park("a")
    assert "free space" in failed.value.hint
    assert cuda_state(world.emulator, job.pid) == "RUNNING"
    monkeypatch.undo()
    assert NAMES[(await world.park("a")).state] == "PARKED"


async def test_what_is_parked_comes_back_although_the_disk_is_full(
    world: World, jobs: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start()
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    await world.park("a")
    monkeypatch.setattr("timeslice_driver.whole_files.os.fsync", lambda _: os.write(-1, b""))  # fails
    assert NAMES[(await world.restore("a")).state] == "RUNNING"
    monkeypatch.undo()


class TestStart:
    """What a node refuses to start with."""

    async def refused(self, world: World, error: type[Exception], message: str, **changes: object) -> None:
        node = Node(world.config(**changes))
        with pytest.raises(error, match=message):
            await node.start()
        await node.stop()

    async def test_a_second_node_on_the_socket_or_the_state_is_refused(self, world: World, folder: Path) -> None:
        await world.start()
        await self.refused(world, ConfigError, "state directory .* is in use by another node")
        await self.refused(world, ConfigError, "socket .* is in use by another node", state_dir=folder / "other")
        assert await world.parts() == {}

    async def test_a_socket_path_that_is_too_long_is_refused(self, world: World, folder: Path) -> None:
        await self.refused(
            world, InvalidRequest, "has .* bytes; a unix socket path may have 107", socket=folder / ("x" * 100)
        )

    async def test_a_socket_in_a_folder_that_is_not_there_is_refused(self, world: World, folder: Path) -> None:
        await self.refused(world, ConfigError, "cannot lock .*No such file", socket=folder / "nowhere" / "s")

    async def test_a_device_in_two_groups_is_refused(self, world: World) -> None:
        await self.refused(world, ConfigError, "is in group a and in group b", groups={"a": "all", "b": "all"})

    async def test_a_state_directory_that_is_a_file_is_refused(self, world: World, folder: Path) -> None:
        (folder / "file").write_text("")
        await self.refused(world, ConfigError, "cannot make the state directory", state_dir=folder / "file")

    async def test_a_node_without_a_name_is_refused(self, world: World) -> None:
        await self.refused(world, InvalidRequest, "name is empty", name="")

    async def test_the_socket_is_for_its_owner_unless_said_otherwise(self, world: World, folder: Path) -> None:
        await world.start()
        assert stat.S_IMODE((folder / "node.sock").stat().st_mode) == 0o600
        await world.stop()
        await world.start(socket_mode=0o666)
        assert stat.S_IMODE((folder / "node.sock").stat().st_mode) == 0o666

    async def test_a_node_that_is_stopped_leaves_its_place_to_the_next(self, world: World) -> None:
        for _ in range(2):
            await world.start()
            await world.stop()
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("nvml")]
        assert len(threads) <= 1
