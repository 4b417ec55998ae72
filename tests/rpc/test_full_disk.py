"""A full disk under the state: nothing is granted that is not written, nobody loses a lease, and then all goes on."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import resource
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from running_orchestrator import Running
from scripted_node import PARKED, RUNNING, ScriptedNode, part
from timeslice_api.errors import StoreFailed, TimesliceError
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.server import Orchestrator

PARTS = (part("job-a", "g", "d1", state=RUNNING), part("job-b", "g", "d1", state=PARKED))


class SmallDisk:
    """A folder on which the space runs out on demand."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        raise NotImplementedError

    def free(self) -> None:
        raise NotImplementedError


class OwnFileSystem(SmallDisk):
    """A small tmpfs, which a large file fills to the last byte."""

    def fill(self) -> None:
        with (self.folder / "filler").open("ab", buffering=0) as filler:
            for size in (1 << 16, 1):
                try:
                    while filler.write(b"x" * size):
                        pass
                except OSError:
                    pass

    def free(self) -> None:
        (self.folder / "filler").unlink()


class SizeLimit(SmallDisk):
    """Without the right to mount: no file of this process may grow."""

    def fill(self) -> None:
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1, self.before[1]))

    def free(self) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)


@pytest.fixture
def disk(short_dir: Path) -> Iterator[SmallDisk]:
    folder = short_dir / "disk"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    mounted = libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, b"size=512k") == 0
    yield OwnFileSystem(folder) if mounted else SizeLimit(folder)
    if mounted:
        libc.umount2(os.fsencode(folder), 2)


@pytest.fixture
async def running(short_dir: Path, disk: SmallDisk) -> AsyncIterator[Running]:
    running = Running(short_dir, state_dir=disk.folder / "state")
    await running.start()
    yield running
    await running.close()


async def test_an_acquire_is_refused_while_the_disk_is_full_and_granted_after_it(
    running: Running, disk: SmallDisk, caplog: pytest.LogCaptureFixture
) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        disk.fill()
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                with pytest.raises(StoreFailed, match=r"full|too large|disk I/O error") as caught:
                    await running.acquire("r1", "job-a")
        assert caught.value.retryable
        assert len(caplog.messages) == 1  # told once, not at every try
        disk.free()
        lease = await running.lease("r1", "job-a")
        (holder,) = (await running.group()).holders
        assert (holder.leases, holder.fencing_token) == (1, lease.fencing_token)


async def test_a_holder_goes_on_and_its_yield_is_kept_until_it_can_be_written(
    running: Running, disk: SmallDisk
) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        disk.fill()
        with pytest.raises(StoreFailed):
            await running.release(lease)
        renewal = pb.KeepAliveRequest(job_id="job-a", lease_ids=[lease.lease_id])
        await running.call(running.stub.KeepAlive(renewal))
        disk.free()
        await running.release(lease)
        assert (await running.lease("r2", "job-b")).fencing_token > lease.fencing_token


async def test_no_command_leaves_before_what_it_rests_on_is_written(running: Running, disk: SmallDisk) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, parts=PARTS) as node:
        lease = await running.lease("r1", "job-a")
        waiting = asyncio.create_task(running.acquire("r2", "job-b", wait_s=9))
        await running.until(lambda group: len(group.waiters) == 1)
        assert (await running.acquire("r2", "job-b", wait_s=0)).waiting.position == 1  # answered when that is on disk
        disk.fill()
        with pytest.raises(StoreFailed):
            await running.release(lease)
        await asyncio.sleep(0.3)
        assert node.commands.empty()
        assert node.parts["job-a", "g"].state == RUNNING
        disk.free()
        assert (await waiting).lease.job_id == "job-b"  # by the timer: nobody asked again
        assert node.parts["job-a", "g"].state == PARKED


async def test_a_node_whose_epoch_cannot_be_outdone_is_not_welcomed_until_it_can(
    running: Running, disk: SmallDisk
) -> None:
    disk.fill()
    node = ScriptedNode(running.channel, "n1", {"g": ("d1",)}, epoch=50)
    with pytest.raises(Exception, match="cannot write"):
        await node.connect()
    disk.free()
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}, epoch=50) as again:
        assert again.welcome.epoch > 50


async def test_what_was_told_before_the_disk_was_full_is_what_a_successor_knows(
    running: Running, disk: SmallDisk
) -> None:
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        lease = await running.lease("r1", "job-a")
        disk.fill()
        with pytest.raises(StoreFailed):
            await running.acquire("r2", "job-b")
        await running.stop()
    disk.free()
    await running.start()
    async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}):
        assert await running.lease("r1", "job-a") == lease


async def test_a_start_on_a_full_disk_is_refused_with_the_reason(short_dir: Path, disk: SmallDisk) -> None:
    disk.fill()
    try:
        with pytest.raises(TimesliceError, match=r"No space left|full|too large|disk I/O error"):
            await Orchestrator(OrchestratorConfig(disk.folder / "new", (f"unix://{short_dir}/n.sock",))).start()
    finally:
        disk.free()
