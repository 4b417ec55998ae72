"""The checkpoint calls: which order is legal, what they refuse, what they wait for.

Sources: cuda.h of CUDA 12.8 to 13.5 for codes and states; github.com/NVIDIA/cuda-checkpoint issues 25, 30, 35, 41, 42,
44 and 51 for what drivers do beyond the header.
"""

import asyncio
import os
from collections.abc import Awaitable
from dataclasses import dataclass
from uuid import UUID

from gpu_emulator import procfs
from gpu_emulator.codes import Cu, State
from gpu_emulator.process import Job, TargetGoneError
from gpu_emulator.silicon import Silicon

# The state in which a call is legal.
LEGAL_IN = {
    "lock": State.RUNNING,
    "checkpoint": State.LOCKED,
    "restore": State.CHECKPOINTED,
    "unlock": State.LOCKED,
}
CALLS = frozenset(LEGAL_IN) | {"get_state", "get_restore_tid"}

Answer = tuple[int, ...]  # code, then values


@dataclass(frozen=True)
class Bandwidth:
    """Bytes per second from device to host and back, 0 without a limit."""

    out: int = 0
    back: int = 0


class Checkpointer:
    """Carries out the six calls against the processes on the silicon."""

    def __init__(self, silicon: Silicon, *, bandwidth: Bandwidth, collective_window: float) -> None:
        """``collective_window``: seconds that a lock of one rank waits for its siblings to be locked too."""
        self._silicon = silicon
        self._bandwidth = bandwidth
        self._collective_window = collective_window

    def target(self, caller: int, pid: int) -> Job | None:
        """The process that a caller means; a pid counts in the caller's own pid namespace."""
        depth = len(procfs.namespace_pids(caller))
        own_depth = len(procfs.namespace_pids(os.getpid()))
        if depth <= own_depth:
            return self._silicon.jobs.get(pid)
        for job in self._silicon.jobs.values():
            pids = procfs.namespace_pids(job.pid)
            if len(pids) >= depth and pids[depth - 1] == pid:
                return job
        return None

    def refusal(self, job: Job | None, caller_uid: int) -> Cu | None:
        """Why the call may not be made at all."""
        if job is None:
            return Cu.INVALID_VALUE
        if caller_uid not in (0, job.uid):
            return Cu.NOT_PERMITTED
        return None if job.contexts else Cu.NOT_INITIALIZED

    async def get_state(self, job: Job) -> Answer:
        await self._until_free(job)
        return (Cu.SUCCESS, job.state)

    async def get_restore_tid(self, job: Job) -> Answer:
        await self._until_free(job)
        return (Cu.SUCCESS, job.restore_tid)

    async def lock(self, job: Job, timeout_ms: int) -> Answer:
        if job.operation or job.state is not State.RUNNING:
            return (Cu.ILLEGAL_STATE,)
        if "mps" in job.flags:
            return (Cu.MPS_CONNECTION_FAILED,)
        if "capture" in job.flags:
            return (Cu.STREAM_CAPTURE_UNSUPPORTED,)
        try:
            async with asyncio.timeout(timeout_ms / 1000 if timeout_ms else None):
                await self._until_free(job)
                return await self._exclusively(job, "lock", self._lock(job))
        except TimeoutError:
            return (Cu.NOT_READY,)

    async def _lock(self, job: Job) -> Answer:
        self._silicon.changed.ring()
        await self._meet_siblings(job)
        try:
            await job.command("lock")
        except (TimeoutError, asyncio.CancelledError):
            job.send("cancel")
            raise
        job.state = State.LOCKED
        return (Cu.SUCCESS,)

    async def _meet_siblings(self, job: Job) -> None:
        """Ranks leave a collective together or not at all: a lock waits a while for the locks of its siblings."""

        def all_are_locking() -> bool:
            siblings = self._silicon.siblings(job)
            return all(other.operation == "lock" or other.state is not State.RUNNING for other in siblings)

        try:
            async with asyncio.timeout(self._collective_window):
                await self._silicon.changed.wait_for(all_are_locking)
        except TimeoutError:
            return

    async def checkpoint(self, job: Job, bandwidth: int | None) -> Answer:
        if (refusal := self._out_of_order(job, "checkpoint")) is not None:
            return (refusal,)
        if job.flags & {"uvm", "ipc"}:
            return (Cu.NOT_SUPPORTED,)
        if any(self._silicon.devices[index].mig for index in job.devices):
            return (Cu.OUT_OF_MEMORY,)
        limit = self._bandwidth.out if bandwidth is None else bandwidth
        return await self._to_the_end(self._exclusively(job, "checkpoint", self._checkpoint(job, limit)))

    async def _checkpoint(self, job: Job, bandwidth: int) -> Answer:
        code, size = await job.command(f"checkpoint {bandwidth}")
        if code == Cu.SUCCESS:
            self._silicon.vacate(job)
            job.state = State.CHECKPOINTED
        return (code, size)

    async def restore(self, job: Job, pairs: dict[UUID, UUID], bandwidth: int | None) -> Answer:
        if (refusal := self._out_of_order(job, "restore")) is not None:
            return (refusal,)
        if job.poisoned:
            return (Cu.OPERATING_SYSTEM,)
        moves = self._moves(job, pairs)
        if moves is None:
            return (Cu.INVALID_VALUE,)
        limit = self._bandwidth.back if bandwidth is None else bandwidth
        return await self._to_the_end(self._exclusively(job, "restore", self._restore(job, moves, limit)))

    async def _restore(self, job: Job, moves: dict[int, int], bandwidth: int) -> Answer:
        if not await self._silicon.occupy(job, moves):
            job.poisoned = True
            return (Cu.OUT_OF_MEMORY,)
        if job.gone:
            self._silicon.vacate(job)
            raise TargetGoneError
        code, size = await job.command(_restore_command(job, moves, bandwidth))
        if code == Cu.SUCCESS:
            job.state = State.LOCKED
        else:
            job.poisoned = True
            self._silicon.vacate(job)
        return (code, size)

    def _moves(self, job: Job, pairs: dict[UUID, UUID]) -> dict[int, int] | None:
        """Old to new device index; None when the map names an unknown device, doubles one, or leaves out one in use."""
        if not pairs:
            return {}
        index_of = {device.uuid: device.index for device in self._silicon.devices}
        if not (pairs.keys() | set(pairs.values())) <= index_of.keys():
            return None
        moves = {index_of[old]: index_of[new] for old, new in pairs.items()}
        complete = job.devices <= moves.keys() and len(set(moves.values())) == len(moves)
        return moves if complete else None

    async def unlock(self, job: Job) -> Answer:
        if (refusal := self._out_of_order(job, "unlock")) is not None:
            return (refusal,)
        return await self._to_the_end(self._exclusively(job, "unlock", self._unlock(job)))

    async def _unlock(self, job: Job) -> Answer:
        await job.command("unlock")
        job.state = State.RUNNING
        return (Cu.SUCCESS,)

    def _out_of_order(self, job: Job, call: str) -> Cu | None:
        return Cu.ILLEGAL_STATE if job.operation or job.state is not LEGAL_IN[call] else None

    async def _until_free(self, job: Job) -> None:
        """A running rank of a group with a locked rank answers nothing at all (cuda-checkpoint issue 30)."""
        await self._silicon.changed.wait_for(lambda: job.gone or not self._silicon.is_held_up(job))
        if job.gone:
            raise TargetGoneError

    async def _exclusively(self, job: Job, call: str, work: Awaitable[Answer]) -> Answer:
        job.operation = call
        self._silicon.trace("begin", call=call, pid=job.pid)
        try:
            return await work
        finally:
            job.operation = None
            self._silicon.trace("end", call=call, pid=job.pid, state=job.state.name.lower())
            self._silicon.changed.ring()

    @staticmethod
    async def _to_the_end(work: Awaitable[Answer]) -> Answer:
        """A copy goes on in the target when its caller dies: there is no cancel during a copy."""
        task = asyncio.ensure_future(work)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)


def _restore_command(job: Job, moves: dict[int, int], bandwidth: int) -> str:
    """restore BANDWIDTH MOVES (OLD NEW)* BLOCKS (PLACE DEVICE EXTENTS (FIRST PAGES)*)*"""
    words: list[int] = [bandwidth, len(moves)]
    for old, new in moves.items():
        words += [old, new]
    words.append(len(job.blocks))
    for place, block in sorted(job.blocks.items()):
        words += [place, block.device, len(block.extents)]
        for first, length in block.extents:
            words += [first, length]
    return "restore " + " ".join(map(str, words))


def parse_pairs(words: list[str]) -> dict[UUID, UUID]:
    """Device map from alternating old and new UUIDs in hexadecimal; ValueError when it is none."""
    if len(words) % 2:
        raise ValueError("a device map consists of pairs")
    return {UUID(old): UUID(new) for old, new in zip(words[::2], words[1::2], strict=True)}
