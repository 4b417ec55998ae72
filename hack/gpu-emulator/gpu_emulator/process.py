"""A CUDA process as the silicon sees it."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_emulator.arena import Extent
from gpu_emulator.codes import State

# What a process may say about itself in GPU_EMULATOR_FLAGS, besides nccl=GROUP.
FLAGS = frozenset({"uvm", "ipc", "mps", "capture", "listed", "unlisted", "graphics"})


class TargetGoneError(Exception):
    """The process ended, or dropped its connection, while somebody waited for it."""


@dataclass
class Block:
    """One allocation: its place in the process' window (pages) and where its bytes are; no extents while parked."""

    device: int
    pages: int
    extents: list[Extent] = field(default_factory=list)


@dataclass
class Job:
    """A process that called cuInit."""

    pid: int
    uid: int
    start_time: int
    restore_tid: int
    name: str
    flags: set[str]
    group: str | None
    send_line: Callable[[str], None]
    state: State = State.RUNNING
    poisoned: bool = False
    # Name of the checkpoint call under way: a second one meanwhile is refused.
    operation: str | None = None
    blocks: dict[int, Block] = field(default_factory=dict)
    contexts: dict[int, int] = field(default_factory=dict)
    overhead: dict[int, list[Extent]] = field(default_factory=dict)
    gone: bool = False
    _sequence: int = 0
    _answers: dict[int, asyncio.Future[tuple[int, int]]] = field(default_factory=dict)

    def send(self, command: str) -> int:
        """Sends a command to the restore thread; returns its sequence number."""
        self._sequence += 1
        self.send_line(f"{self._sequence} {command}")
        return self._sequence

    async def command(self, command: str) -> tuple[int, int]:
        """Code and bytes that the restore thread answers; TargetGoneError when it cannot any more."""
        if self.gone:
            raise TargetGoneError
        sequence = self.send(command)
        answer: asyncio.Future[tuple[int, int]] = asyncio.get_running_loop().create_future()
        self._answers[sequence] = answer
        try:
            return await answer
        finally:
            self._answers.pop(sequence, None)

    def answered(self, sequence: int, code: int, count: int) -> None:
        answer = self._answers.get(sequence)
        if answer is not None and not answer.done():
            answer.set_result((code, count))

    def vanish(self) -> None:
        self.gone = True
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(TargetGoneError())

    @property
    def devices(self) -> set[int]:
        """Devices on which the process has a context; they are remembered while it is parked."""
        return set(self.contexts)

    def pages_on(self, device: int) -> int:
        """Pages that it occupies there now."""
        pages = sum(length for _, length in self.overhead.get(device, []))
        return pages + sum(
            length for block in self.blocks.values() if block.device == device for _, length in block.extents
        )

    def pages_wanted(self) -> dict[int, int]:
        """Pages per device of its allocations, parked or not, without context overhead."""
        wanted: dict[int, int] = {}
        for block in self.blocks.values():
            wanted[block.device] = wanted.get(block.device, 0) + block.pages
        return wanted


def parse_flags(text: str) -> tuple[set[str], str | None]:
    """Flags and NCCL group of ``uvm,mps,nccl=NAME``; ValueError names an unknown flag."""
    flags: set[str] = set()
    group: str | None = None
    for word in text.split(","):
        if word in ("", "-"):
            continue
        if word.startswith("nccl="):
            group = word.removeprefix("nccl=")
        elif word in FLAGS:
            flags.add(word)
        else:
            raise ValueError(f"unknown flag {word!r}; known are {', '.join(sorted(FLAGS))} and nccl=GROUP")
    return flags, group
