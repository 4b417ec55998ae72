"""A node in this process, over an emulated machine: what most tests of the node start from."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc.aio
import pytest
from gpu_emulator.emulator import Emulator
from timeslice_api.errors import OperationFailed
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc, types_pb2
from timeslice_driver.backends.cuda import Limits
from timeslice_driver.config import NodeConfig
from timeslice_driver.node import Node
from timeslice_driver.preflight import Margins

MIB = 1 << 20
# Short, so that a test of a hang does not hang for long; long enough for a busy machine.
LIMITS = Limits(start_s=20.0, query_s=1.0, lock_slack_s=0.7, unlock_s=1.0, copy_base_s=1.5)
MARGINS = Margins(cgroup=0, node=0, device=MIB)
NAMES = {number: name.removeprefix("PART_STATE_") for name, number in types_pb2.PartState.items()}


def config_for(emulator: Emulator, folder: Path, **changes: Any) -> NodeConfig:
    """A node that sees the emulated devices, with its files in a folder."""
    base = NodeConfig(
        state_dir=folder / "state",
        socket=folder / "node.sock",
        name="node-1",
        dev_root=emulator.dev_root,
        libcuda=str(emulator.libraries / "libcuda.so.1"),
        libnvml=str(emulator.libraries / "libnvidia-ml.so.1"),
        lock_timeout_s=2.0,
        look_interval_s=0.1,
        limits=LIMITS,
        margins=MARGINS,
    )
    return replace(base, **changes)


class World:
    """Starts a node, and talks to it as jobs and people do: over its socket."""

    def __init__(self, emulator: Emulator, folder: Path) -> None:
        self.emulator = emulator
        self.folder = folder
        self.node: Node | None = None
        self._channel: grpc.aio.Channel | None = None

    def config(self, **changes: Any) -> NodeConfig:
        return config_for(self.emulator, self.folder, **changes)

    async def start(self, **changes: Any) -> Node:
        await self.hang_up()
        self.node = Node(self.config(**changes))
        await self.node.start()
        return self.node

    async def hang_up(self) -> None:
        """A channel that found nobody would wait before it tries again."""
        if self._channel:
            await self._channel.close()
            self._channel = None

    async def stop(self) -> None:
        await self.hang_up()
        if self.node:
            await self.node.stop()
            self.node = None

    @property
    def agent(self) -> Any:
        """The stub of its service."""
        if self._channel is None:
            options = (("grpc.use_local_subchannel_pool", 1),)
            self._channel = grpc.aio.insecure_channel(f"unix:{self.folder / 'node.sock'}", options=options)
        return snapshot_agent_pb2_grpc.SnapshotAgentStub(self._channel)

    async def register(
        self, job_id: str, pid: int, *, group_id: str = "default", device_ids: Sequence[str] = ()
    ) -> types_pb2.Part:
        request = pb.RegisterRequest(job_id=job_id, group_id=group_id, pid=pid, device_ids=device_ids)
        return (await self._ask(self.agent.Register(request))).part

    async def unregister(self, job_id: str, pid: int, *, group_id: str = "default") -> None:
        await self._ask(self.agent.Unregister(pb.UnregisterRequest(job_id=job_id, group_id=group_id, pid=pid)))

    async def park(self, job_id: str, *, group_id: str = "", lock_timeout_s: float = 0.0) -> types_pb2.Part:
        request = pb.SnapshotRequest(job_id=job_id, group_id=group_id, lock_timeout_s=lock_timeout_s)
        return (await self._ask(self.agent.Snapshot(request))).parts[0]

    async def restore(self, job_id: str, *, group_id: str = "") -> types_pb2.Part:
        return (await self._ask(self.agent.Restore(pb.RestoreRequest(job_id=job_id, group_id=group_id)))).parts[0]

    async def parts(self) -> dict[str, types_pb2.Part]:
        """By job id, or job/group where the group is not the default one."""
        listed = await self._ask(self.agent.ListJobs(pb.ListJobsRequest()))
        return {_key(part): part for part in listed.parts}

    async def state(self, job_id: str) -> str:
        return NAMES[(await self.parts())[job_id].state]

    async def until(self, job_id: str, state: str, *, seconds: float = 5.0) -> types_pb2.Part:
        """Waits for a job's part to get there by itself; GONE when it is to disappear."""
        async with asyncio.timeout(seconds):
            async for listed in self.agent.WatchJobs(pb.WatchJobsRequest()):
                part = {_key(each): each for each in listed.parts}.get(job_id)
                if (NAMES[part.state] if part else "GONE") == state:
                    return part or types_pb2.Part()
        raise AssertionError("the watch ended")

    async def _ask(self, call: Any) -> Any:
        try:
            return await asyncio.wait_for(call, 20)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


@contextmanager
def failing(pattern: str) -> Iterator[pytest.ExceptionInfo[OperationFailed]]:
    """The body must end in an OperationFailed; `pattern` is of its "Reason: message"."""
    with pytest.raises(OperationFailed) as failed:
        yield failed
    assert re.search(pattern, f"{failed.value.reason}: {failed.value.message}")


def _key(part: types_pb2.Part) -> str:
    member = part.member
    return str(member.job_id) if member.group_id == "default" else f"{member.job_id}/{member.group_id}"


def in_use(emulator: Emulator, device: int = 0) -> int:
    """Device memory in use, as the emulated driver counts it (bytes)."""
    return int(emulator.snapshot()["devices"][device]["used"])


def cuda_state(emulator: Emulator, pid: int) -> str:
    """A process's state, as the emulated driver knows it."""
    states = {process["pid"]: process["state"] for process in emulator.snapshot()["processes"]}
    return str(states[pid])
