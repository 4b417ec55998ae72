"""Requests of the C libraries: one line in, one line out, with scripted faults in between."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

from gpu_emulator.checkpoint import CALLS, Checkpointer, parse_pairs
from gpu_emulator.codes import Cu, Nvml, State
from gpu_emulator.faults import Fault, FaultScript
from gpu_emulator.nvml import NvmlService
from gpu_emulator.process import Job, TargetGoneError
from gpu_emulator.silicon import Silicon

Answer = tuple[object, ...]


class CallerCrashError(Exception):
    """The caller is to die of a segmentation fault."""


class Requests:
    """Answers every call that is not a control request."""

    def __init__(
        self,
        silicon: Silicon,
        *,
        checkpointer: Checkpointer,
        nvml: NvmlService,
        faults: FaultScript,
        versions: tuple[int, str],
    ) -> None:
        self._silicon = silicon
        self._checkpointer = checkpointer
        self._nvml = nvml
        self._faults = faults
        self._versions = versions
        self._of_job: dict[str, Callable[[Job, list[str]], Awaitable[Answer]]] = {
            "alloc": self._alloc,
            "free": self._free,
            "context": self._context,
            "uncontext": self._uncontext,
            "meminfo": self._meminfo,
            "busy": self._busy,
        }

    async def answer(self, verb: str, rest: str, *, caller: int, caller_uid: int) -> str:
        """The line to send back. A malformed request gets INVALID_VALUE."""
        try:
            if verb == "version":
                return _line((Cu.SUCCESS, *self._versions))
            if verb == "nvml":
                return _line(await self._answer_nvml(rest, caller, caller_uid))
            if verb in CALLS:
                return _line(await self._answer_checkpoint(verb, rest.split(), caller, caller_uid))
            return _line(await self._answer_job(verb, rest.split(), caller))
        except TargetGoneError:
            return _line((Cu.UNKNOWN,))
        except (IndexError, ValueError):
            return _line((Cu.INVALID_VALUE,))

    async def init_refusal(self, job: Job) -> int | None:
        """Code of a scripted fault that hits this cuInit, None when it may go on."""
        fault = self._faults.match(("init",), job.pid, job.name)
        if fault is None:
            return None
        try:
            await self._strike(fault, job)
        except CallerCrashError:
            os.kill(job.pid, signal.SIGSEGV)
        return fault.code

    async def _answer_nvml(self, rest: str, caller: int, caller_uid: int) -> Answer:
        function, index, *argument = rest.split(" ", 2)

        async def work(_: Fault | None) -> Answer:
            return self._nvml.answer(function, int(index), argument[0] if argument else "", caller_uid=caller_uid)

        return await self._with_faults((function, "nvml"), (caller, "-"), self._silicon.jobs.get(caller), work)

    async def _answer_job(self, verb: str, words: list[str], caller: int) -> Answer:
        job = self._silicon.jobs.get(caller)
        handler = self._of_job.get(verb)
        if handler is None:
            raise ValueError(f"unknown request {verb!r}")
        if job is None:
            return (Cu.NOT_INITIALIZED,)
        known: Job = job
        return await self._with_faults((verb,), (caller, job.name), job, lambda _: handler(known, words))

    async def _answer_checkpoint(self, verb: str, words: list[str], caller: int, caller_uid: int) -> Answer:
        pid = int(words[0])
        job = self._checkpointer.target(caller, pid)

        async def work(fault: Fault | None) -> Answer:
            refusal = self._checkpointer.refusal(job, caller_uid)
            if refusal is not None or job is None:
                return (refusal,)
            return await self._checkpoint_call(verb, job, words[1:], fault.bandwidth if fault else None)

        return await self._with_faults((verb,), (job.pid if job else pid, job.name if job else "-"), job, work)

    async def _checkpoint_call(self, verb: str, job: Job, words: list[str], bandwidth: int | None) -> Answer:
        match verb:
            case "lock":
                return await self._checkpointer.lock(job, int(words[0]) if words else 0)
            case "checkpoint":
                return await self._checkpointer.checkpoint(job, bandwidth)
            case "restore":
                return await self._checkpointer.restore(job, parse_pairs(words), bandwidth)
            case "unlock":
                return await self._checkpointer.unlock(job)
            case "get_state":
                return await self._checkpointer.get_state(job)
            case _:
                return await self._checkpointer.get_restore_tid(job)

    async def _with_faults(
        self,
        calls: tuple[str, ...],
        subject: tuple[int, str],
        job: Job | None,
        work: Callable[[Fault | None], Awaitable[Answer]],
    ) -> Answer:
        fault = self._faults.match(calls, *subject)
        if fault is None:
            return await work(None)
        self._silicon.trace("fault", call=calls[0], pid=subject[0], fault=fault.told())
        if fault.after:
            answer = await work(fault)
            await self._strike(fault, job)
            return answer if fault.code is None else (fault.code,)
        await self._strike(fault, job)
        return await work(fault) if fault.code is None else (fault.code,)

    async def _strike(self, fault: Fault, job: Job | None) -> None:
        await asyncio.sleep(fault.delay_ms / 1000)
        if job is not None:
            self._mark(fault, job)
            if fault.kill_target:  # whoever asks next must not find it alive
                await self._silicon.changed.wait_for(lambda: job.gone)
        if fault.crash_caller:
            raise CallerCrashError
        if fault.hang:
            await asyncio.get_running_loop().create_future()

    def _mark(self, fault: Fault, job: Job) -> None:
        job.poisoned = job.poisoned or fault.poison
        if fault.fail_state:
            job.state = State.FAILED
        if fault.kill_target:
            os.kill(job.pid, signal.SIGKILL)
        self._silicon.changed.ring()

    async def _alloc(self, job: Job, words: list[str]) -> Answer:
        extents = await self._silicon.allocate(job, int(words[0]), int(words[1]), int(words[2]))
        if extents is None:
            return (Cu.OUT_OF_MEMORY,)
        return (Cu.SUCCESS, len(extents), *(number for extent in extents for number in extent))

    async def _free(self, job: Job, words: list[str]) -> Answer:
        return (self._silicon.free(job, int(words[0])),)

    async def _context(self, job: Job, words: list[str]) -> Answer:
        return (await self._silicon.add_context(job, int(words[0])),)

    async def _uncontext(self, job: Job, words: list[str]) -> Answer:
        return (self._silicon.remove_context(job, int(words[0])),)

    async def _meminfo(self, _job: Job, words: list[str]) -> Answer:
        device = self._silicon.device(int(words[0]))
        if device is None:
            return (Cu.INVALID_VALUE,)
        return (Cu.SUCCESS, device.arena.total - device.arena.used, device.arena.total)

    async def _busy(self, _job: Job, words: list[str]) -> Answer:
        device = self._silicon.device(int(words[0]))
        if device is not None:
            device.busy_until = max(device.busy_until, time.monotonic() + int(words[1]) / 1000)
        return (Cu.SUCCESS,)


def _line(answer: Answer) -> str:
    """Codes as numbers, texts as they are."""
    return " ".join(str(int(word)) if isinstance(word, int | Cu | Nvml) else str(word) for word in answer)
