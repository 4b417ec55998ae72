"""The machine's devices and the processes on them: accounts of memory and contexts."""

import asyncio

from gpu_emulator.arena import PAGE, Extent
from gpu_emulator.bell import Bell
from gpu_emulator.codes import Cu, State
from gpu_emulator.device import Device
from gpu_emulator.process import Block, Job
from gpu_emulator.trace import Trace, no_trace


class Silicon:
    """Hands pages to processes and takes them back; nothing here knows of connections."""

    def __init__(self, devices: list[Device], *, context_overhead: int, trace: Trace = no_trace) -> None:
        """``context_overhead`` in bytes per process and device. ``trace`` is told of everything that moves."""
        self.trace = trace
        self.devices = devices
        self.jobs: dict[int, Job] = {}
        self.changed = Bell()
        self._overhead_pages = -(-context_overhead // PAGE)

    def device(self, index: int) -> Device | None:
        return self.devices[index] if 0 <= index < len(self.devices) else None

    async def obtain(self, device: Device, pages: int) -> list[Extent] | None:
        """Pages with memory behind them, None when the device is full."""
        extents = device.arena.allocator.take(pages)
        if extents and device.arena.missing(extents):
            work = asyncio.get_running_loop().run_in_executor(None, device.arena.make_present, extents)
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                await asyncio.wait([work])
                device.arena.allocator.give_back(extents)
                raise
            except MemoryError:
                device.arena.allocator.give_back(extents)
                return None
        return extents

    def give_back(self, device: int, extents: list[Extent]) -> None:
        if extents:
            self.devices[device].arena.allocator.give_back(extents)

    async def allocate(self, job: Job, index: int, place: int, pages: int) -> list[Extent] | None:
        """A new block of the process; None when the device is full."""
        device = self.device(index)
        if device is None or pages <= 0 or place in job.blocks:
            return None
        extents = await self.obtain(device, pages)
        if extents is None:
            return None
        if job.gone:
            self.give_back(index, extents)
            return None
        job.blocks[place] = Block(index, pages, extents)
        return extents

    def free(self, job: Job, place: int) -> Cu:
        block = job.blocks.pop(place, None)
        if block is None:
            return Cu.INVALID_VALUE
        self.give_back(block.device, block.extents)
        return Cu.SUCCESS

    async def add_context(self, job: Job, index: int) -> Cu:
        device = self.device(index)
        if device is None:
            return Cu.INVALID_VALUE
        if index not in job.contexts:
            extents = await self.obtain(device, self._overhead_pages)
            if extents is None:
                return Cu.OUT_OF_MEMORY
            if job.gone:
                self.give_back(index, extents)
                return Cu.UNKNOWN
            job.overhead[index] = extents
            self.trace("context", pid=job.pid, device=device.uuid_text)
        job.contexts[index] = job.contexts.get(index, 0) + 1
        return Cu.SUCCESS

    def remove_context(self, job: Job, index: int) -> Cu:
        if index not in job.contexts:
            return Cu.INVALID_VALUE
        job.contexts[index] -= 1
        if job.contexts[index] == 0:
            del job.contexts[index]
            self.give_back(index, job.overhead.pop(index, []))
        return Cu.SUCCESS

    def vacate(self, job: Job) -> None:
        """Gives back all pages of a parked or ended process; what it had is remembered in its blocks."""
        for block in job.blocks.values():
            self.give_back(block.device, block.extents)
            block.extents = []
        for index, extents in job.overhead.items():
            self.give_back(index, extents)
        job.overhead.clear()

    async def occupy(self, job: Job, moves: dict[int, int]) -> bool:
        """Gets pages again for a parked process, on other devices where ``moves`` says so.

        False, and nothing is taken, when there is no room.
        """
        taken: list[tuple[int, list[Extent]]] = []
        blocks: list[tuple[Block, int, list[Extent]]] = []
        overhead: dict[int, list[Extent]] = {}
        wanted = [(block, block.device, block.pages) for _, block in sorted(job.blocks.items())]
        for block, old, pages in [*wanted, *((None, index, self._overhead_pages) for index in job.contexts)]:
            new = moves.get(old, old)
            extents = await self.obtain(self.devices[new], pages)
            if extents is None:
                for device, given in taken:
                    self.give_back(device, given)
                return False
            taken.append((new, extents))
            if block is None:
                overhead[new] = extents
            else:
                blocks.append((block, new, extents))
        for block, new, extents in blocks:
            block.device, block.extents = new, extents
        job.overhead = overhead
        job.contexts = {moves.get(index, index): count for index, count in job.contexts.items()}
        return True

    def add_job(self, job: Job) -> None:
        old = self.jobs.get(job.pid)
        if old is not None:
            self.remove_job(old)
        self.jobs[job.pid] = job

    def remove_job(self, job: Job) -> None:
        """A process has ended: everything it had is released, everybody who waits for it is told."""
        if job.gone:
            return
        self.trace("gone", pid=job.pid)
        self.vacate(job)
        job.vanish()
        if self.jobs.get(job.pid) is job:
            del self.jobs[job.pid]
        self.changed.ring()

    def siblings(self, job: Job) -> list[Job]:
        """The other processes of its NCCL group."""
        if job.group is None:
            return []
        return [other for other in self.jobs.values() if other is not job and other.group == job.group]

    def is_held_up(self, job: Job) -> bool:
        """True while a running process cannot answer because a sibling is locked or parked."""
        return job.state is State.RUNNING and any(other.state is not State.RUNNING for other in self.siblings(job))
