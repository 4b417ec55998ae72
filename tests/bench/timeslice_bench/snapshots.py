"""Snapshot and restore of a job through the node, against a memcpy of as many bytes.

The whole way is timed: a call on the node's socket, preflight, lock, checkpoint, journal, and back. The GPU is
emulated, without a limit of bandwidth, so what remains is the product and copies in host memory.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
from gpu_emulator.emulator import Emulator
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc

from timeslice_bench.case import Effort, Measurement, p50
from timeslice_bench.child import child, module
from timeslice_bench.memcpy import Yardstick

if TYPE_CHECKING:
    from timeslice_api.v1alpha1.snapshot_agent_pb2_grpc import SnapshotAgentAsyncStub

JOB = "job-a"
GROUP = "default"
CALL_LIMIT_S = 60.0
SPARE = 256 << 20  # of device memory, for the context


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`park_vs_memcpy` and `restore_vs_memcpy`; `profile` is of no use here, as there is no orchestrator."""
    size = effort.snapshot_bytes
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(emulated(size + SPARE))
        socket = directory / "node.sock"
        await stack.enter_async_context(
            child("node", node_command(emulator, socket), directory, env=emulator.variables)
        )
        command = module("gpu_job_child", str(size))
        job = await stack.enter_async_context(child("job", command, directory, env=emulator.variables))
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{socket}"))
        agent = cast("SnapshotAgentAsyncStub", snapshot_agent_pb2_grpc.SnapshotAgentStub(channel))
        await agent.Register(pb.RegisterRequest(job_id=JOB, group_id=GROUP, pid=job.pid), timeout=CALL_LIMIT_S)

        before = await job.ask("checksum", CALL_LIMIT_S)
        times = await _rounds(agent, size, effort.snapshots)
        unchanged = await job.ask("checksum", CALL_LIMIT_S) == before
        empty_s = p50([await _timed(agent.ListJobs(pb.ListJobsRequest())) for _ in range(effort.empty_calls)])
    return [_ratio(name, times, size=size, empty_s=empty_s, unchanged=unchanged) for name in ("park", "restore")]


@asynccontextmanager
async def emulated(memory: int) -> AsyncIterator[Emulator]:
    """A GPU with that much memory (bytes)."""
    emulator = Emulator(memory=memory)
    await asyncio.to_thread(emulator.__enter__)
    try:
        yield emulator
    finally:
        await asyncio.shield(asyncio.to_thread(emulator.__exit__, None, None, None))


def node_command(emulator: Emulator, socket: Path, orchestrator: str = "") -> list[str]:
    """The command of a node with that GPU, that socket, and the address of its orchestrator if it has one."""
    options = {
        "--orchestrator": orchestrator,
        "--state-dir": socket.with_name("node"),
        "--socket": socket,
        "--dev-root": emulator.dev_root,
        "--libcuda": emulator.libraries / "libcuda.so.1",
        "--libnvml": emulator.libraries / "libnvidia-ml.so.1",
    }
    return module("node_child", *(str(word) for pair in options.items() for word in pair))


async def _rounds(agent: SnapshotAgentAsyncStub, size: int, count: int) -> dict[str, list[float]]:
    """Seconds of each step. Snapshot and yardstick alternate, so that both meet the same state of the machine."""
    times: dict[str, list[float]] = {"park": [], "park memcpy": [], "restore": [], "restore memcpy": []}
    yardstick = await asyncio.to_thread(Yardstick, size)
    for _ in range(count + 1):  # the first round makes the machine find its memory
        times["park memcpy"].append(await asyncio.to_thread(yardstick.park))
        times["park"].append(await _timed(agent.Snapshot(pb.SnapshotRequest(job_id=JOB), timeout=CALL_LIMIT_S)))
        times["restore memcpy"].append(await asyncio.to_thread(yardstick.restore))
        times["restore"].append(await _timed(agent.Restore(pb.RestoreRequest(job_id=JOB), timeout=CALL_LIMIT_S)))
    return {step: seconds[1:] for step, seconds in times.items()}


async def _timed(call: Awaitable[object]) -> float:
    start = time.perf_counter()
    await call
    return time.perf_counter() - start


def _ratio(step: str, times: dict[str, list[float]], *, size: int, empty_s: float, unchanged: bool) -> Measurement:
    # Whatever else the machine does makes a copy longer, never shorter: the best of each is compared.
    seconds, yardstick = min(times[step]), min(times[f"{step} memcpy"])
    detail = (
        f"{size / 1e9 / seconds:.2f} GB/s of {size >> 20} MiB, best of {len(times[step])}; "
        f"one memcpy into memory as fresh, on one thread: {size / 1e9 / yardstick:.2f} GB/s; "
        f"bytes on the device {'unchanged' if unchanged else 'CHANGED'}; empty call: ListJobs of the node"
    )
    return Measurement(f"{step}_vs_memcpy", yardstick / seconds, seconds / empty_s, detail, sound=unchanged)
