"""Parks processes with the CUDA driver's checkpoint functions, called through a helper process or the vendor's command.

States, orders and codes: cuCheckpointProcess* in cuda.h (12.8 and newer), README of github.com/NVIDIA/cuda-checkpoint.
    Three
rules hold for every step. A process is looked at by identity just before each call, so a number that was given to
another process is never acted on. A call that does not return is ended by killing the helper, never the target. After
any failure the driver is asked for the truth before anything else happens.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol

from timeslice_driver.backends import cuda_errors
from timeslice_driver.backends.base import Capabilities, Estimate, Outcome, Target, TargetState
from timeslice_driver.backends.helper_process import HelperLostError, Reply
from timeslice_driver.faults import Fault
from timeslice_driver.processes import ProcessId

CUDA_STATES: Final = {
    0: TargetState.RUNNING,
    1: TargetState.LOCKED,
    2: TargetState.CHECKPOINTED,
    3: TargetState.FAILED,
}
# A restore that ends with one of these leaves a process that no later call can save (cuda-checkpoint issue 44).
_SPOILT: Final = frozenset({cuda_errors.OUT_OF_MEMORY, cuda_errors.OPERATING_SYSTEM})
UNRECOVERABLE: Final = "Unrecoverable"
_NO_CONTEXT: Final = frozenset({cuda_errors.INVALID_VALUE, cuda_errors.NOT_INITIALIZED})


@dataclass(frozen=True)
class Limits:
    """How long the driver may take (seconds; rates in bytes per second) before the helper is killed."""

    start_s: float = 60.0
    query_s: float = 5.0
    lock_slack_s: float = 5.0  # on top of the lock's own time limit
    unlock_s: float = 10.0
    copy_base_s: float = 5.0
    checkpoint_rate: float = 1e9
    restore_rate: float = 2e9

    def checkpoint_s(self, size: int) -> float:
        """For one process with that much device memory (bytes)."""
        return self.copy_base_s + size / self.checkpoint_rate

    def restore_s(self, size: int) -> float:
        """For one process with that much device memory (bytes)."""
        return self.copy_base_s + size / self.restore_rate


class Session(Protocol):
    """Whoever makes calls for one operation."""

    async def call(self, name: str, pid: int, *, deadline_s: float, timeout_ms: int = 0) -> Reply:
        """One call of the checkpoint API. Raises HelperLostError when it did not return within the deadline."""


class Calls(Protocol):
    """A way to the checkpoint API: the driver's functions in a helper, or the vendor's command."""

    @property
    def pids(self) -> frozenset[int]:
        """Processes of ours that may look like clients of the driver."""

    async def open(self) -> Capabilities:
        """Gets ready and says what it found. Never raises."""

    async def close(self) -> None:
        """Ends what it has started."""

    def lend(self, job_file: str = "", *, of: int = 0) -> AbstractAsyncContextManager[Session]:
        """A session of its own for one operation, with the job file of that key, which process `of` has.

        Raises:
            HelperLostError: there can be none.
        """


@dataclass(frozen=True)
class _Step:
    name: str
    goal: TargetState
    deadline_s: Callable[[int], float]
    timeout_ms: int = 0
    one_by_one: bool = False  # of processes that were started under one job file


class CudaBackend:
    """The backend `cuda`, and `cuda-checkpoint` with the command in place of the helper.

    Args:
        calls: the way to the checkpoint API.
        alive: whether a process still runs.
        limits: see there.
    """

    def __init__(self, calls: Calls, *, alive: Callable[[ProcessId], bool], limits: Limits) -> None:
        self._calls = calls
        self._alive = alive
        self._limits = limits
        unopened = Fault("NotOpened", "the backend has not been opened")
        self._capabilities = Capabilities("cuda", unavailable=unopened)

    @property
    def pids(self) -> frozenset[int]:
        """Processes of ours that may look like clients of the driver."""
        return self._calls.pids

    async def open(self) -> None:
        """See `Backend`."""
        self._capabilities = await self._calls.open()

    async def close(self) -> None:
        """See `Backend`."""
        await self._calls.close()

    def capabilities(self) -> Capabilities:
        """See `Backend`."""
        return self._capabilities

    def estimate(self, targets: Sequence[Target]) -> Estimate:
        """Published rates of the classic API: 3 GB/s out and 8 GB/s in per device, half a second fixed."""
        size = sum(target.size for target in targets)
        return Estimate(host_bytes=size, park_s=0.5 + size / 3e9, restore_s=0.5 + size / 8e9)

    async def probe(self, processes: Sequence[ProcessId]) -> Mapping[ProcessId, TargetState]:
        """Whoever has a restore thread has CUDA state; get-state also answers for launchers that have none."""
        threads = await self._ask("restore_thread", processes)
        with_state = [process for process, reply in threads.items() if reply and reply.code == cuda_errors.SUCCESS]
        states = await self.states(with_state)
        return {process: states.get(process, self._without(process, reply)) for process, reply in threads.items()}

    async def states(self, processes: Sequence[ProcessId]) -> Mapping[ProcessId, TargetState]:
        """See `Backend`."""
        replies = await self._ask("state", processes)
        return {process: self._state_of(process, reply) for process, reply in replies.items()}

    async def lock(self, targets: Sequence[Target], *, timeout_s: float) -> Outcome:
        """See `Backend`. A time limit of 0 would be none for the driver, so it is at least a millisecond."""
        deadline_s = timeout_s + self._limits.lock_slack_s
        step = _Step("lock", TargetState.LOCKED, lambda _: deadline_s, timeout_ms=max(1, round(timeout_s * 1000)))
        return await self._run(step, targets)

    async def checkpoint(self, targets: Sequence[Target]) -> Outcome:
        """See `Backend`."""
        step = _Step("checkpoint", TargetState.CHECKPOINTED, self._limits.checkpoint_s, one_by_one=True)
        return await self._run(step, targets)

    async def restore(self, targets: Sequence[Target]) -> Outcome:
        """See `Backend`."""
        return await self._run(_Step("restore", TargetState.LOCKED, self._limits.restore_s, one_by_one=True), targets)

    async def unlock(self, targets: Sequence[Target]) -> Outcome:
        """See `Backend`."""
        return await self._run(_Step("unlock", TargetState.RUNNING, lambda _: self._limits.unlock_s), targets)

    async def _run(self, step: _Step, targets: Sequence[Target]) -> Outcome:
        began = time.monotonic()
        by_file: dict[str, list[Target]] = {}
        for target in targets:
            by_file.setdefault(target.job_file, []).append(target)
        batches = await asyncio.gather(*(self._batch(step, file, batch) for file, batch in by_file.items()))
        results = [result for batch in batches for result in batch]
        doubtful = [target.process for target, reply in results if not _succeeded(reply)]
        truth = await self.states(doubtful) if doubtful else {}
        states = {target.process: truth.get(target.process, step.goal) for target, _ in results}
        faults = {
            target.process: fault
            for target, reply in results
            if (fault := self._judge(step, target.process, reply, states[target.process]))
        }
        spoilt = frozenset(process for process, fault in faults.items() if fault.reason == UNRECOVERABLE)
        lost = frozenset(target.process for target, reply in results if isinstance(reply, HelperLostError))
        return Outcome(states, faults, spoilt, lost & faults.keys(), seconds=time.monotonic() - began)

    async def _batch(
        self, step: _Step, job_file: str, batch: Sequence[Target]
    ) -> list[tuple[Target, Reply | HelperLostError]]:
        try:
            alive = next((each.process for each in batch if self._alive(each.process)), batch[0].process)
            async with self._calls.lend(job_file, of=alive.pid) as session:
                if step.one_by_one and job_file:
                    replies = [await self._call(session, step, target) for target in batch]
                else:
                    replies = list(await asyncio.gather(*(self._call(session, step, target) for target in batch)))
        except HelperLostError as error:
            replies = [error] * len(batch)
        return list(zip(batch, replies, strict=True))

    async def _call(self, session: Session, step: _Step, target: Target) -> Reply | HelperLostError:
        if not self._alive(target.process):
            return Reply(cuda_errors.INVALID_VALUE)
        deadline_s = step.deadline_s(target.size)
        try:
            return await session.call(step.name, target.process.pid, deadline_s=deadline_s, timeout_ms=step.timeout_ms)
        except HelperLostError as error:
            return error

    def _judge(
        self, step: _Step, process: ProcessId, reply: Reply | HelperLostError, truth: TargetState
    ) -> Fault | None:
        if truth in {step.goal, TargetState.NOTHING, TargetState.GONE}:
            return None
        pid = process.pid
        if isinstance(reply, HelperLostError):
            return _stuck(step.name, pid, truth, str(reply))
        fault = cuda_errors.fault_of(reply.code, step=step.name, pid=pid, detail=self._capabilities.detail)
        if truth is TargetState.FAILED or (step.name == "restore" and reply.code in _SPOILT):
            return _unrecoverable(fault, pid)
        return fault

    async def _ask(self, query: str, processes: Sequence[ProcessId]) -> dict[ProcessId, Reply | None]:
        if not processes:
            return {}
        try:
            async with self._calls.lend() as session:
                replies = await asyncio.gather(*(self._query(session, query, process) for process in processes))
        except HelperLostError:
            replies = [None] * len(processes)
        return dict(zip(processes, replies, strict=True))

    async def _query(self, session: Session, query: str, process: ProcessId) -> Reply | None:
        if not self._alive(process):
            return Reply(cuda_errors.INVALID_VALUE)
        try:
            return await session.call(query, process.pid, deadline_s=self._limits.query_s)
        except HelperLostError:
            return None

    def _state_of(self, process: ProcessId, reply: Reply | None) -> TargetState:
        if reply and reply.code == cuda_errors.SUCCESS:
            return CUDA_STATES.get(reply.value, TargetState.UNKNOWN)
        return self._without(process, reply)

    def _without(self, process: ProcessId, reply: Reply | None) -> TargetState:
        if not self._alive(process):
            return TargetState.GONE
        return TargetState.NOTHING if reply and reply.code in _NO_CONTEXT else TargetState.UNKNOWN


def _succeeded(reply: Reply | HelperLostError) -> bool:
    return isinstance(reply, Reply) and reply.code == cuda_errors.SUCCESS


def _stuck(step: str, pid: int, truth: TargetState, why: str) -> Fault:
    known = "its state cannot be found out" if truth is TargetState.UNKNOWN else f"the driver calls it {truth.value}"
    return Fault(
        "Stuck",
        f"{step} of process {pid} was given up ({why}); {known}",
        "a collective in flight, NVLink multicast (NCCL_NVLS_ENABLE=0) or shared CUDA IPC memory (cuda-checkpoint "
        "--launch-job) make the driver wait for ever",
        retryable=truth is not TargetState.UNKNOWN,
    )


def _unrecoverable(cause: Fault, pid: int) -> Fault:
    hint = f"end process {pid} and start the job anew; no driver call can bring it back"
    return Fault(UNRECOVERABLE, cause.message, hint)
