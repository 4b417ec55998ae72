"""Processes whose CUDA calls a test makes one by one: jobs to be parked, and agents that park them."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from gpu_emulator.emulator import HOME, Emulator

_TIME_LIMIT = 10.0


class Puppet:
    """A process under the emulator. Every call answers ``(CUresult, value)``.

    ``begin`` starts a call and ``finish`` waits for it, so that a test can look at a call that blocks. Calls run one
    after the other on the process' main thread; with ``apart=True`` on a thread of their own.
    """

    def __init__(
        self,
        emulator: Emulator,
        *,
        flags: str = "",
        name: str = "",
        prefix: Sequence[str] = (),
        env: dict[str, str] | None = None,
        cwd: Path | None = None,
    ) -> None:
        variables = {"GPU_EMULATOR_FLAGS": flags, "GPU_EMULATOR_NAME": name, **(env or {})}
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-P", str(HOME / "gpu_emulator" / "puppet_process.py")],
            env={**emulator.env, **variables},
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._pending = b""
        self._answers: dict[int, tuple[int, Any]] = {}
        self._calls = 0
        # Not the pid of the child when a prefix forks: the process itself knows best.
        self.pid = self.process.pid

    def begin(self, call: str, /, *, apart: bool = False, **arguments: Any) -> int:
        """Starts a call; returns its number for ``finish``."""
        self._calls += 1
        message = {"number": self._calls, "call": call, "apart": apart, "arguments": arguments}
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(json.dumps(message).encode() + b"\n")
        stdin.flush()
        return self._calls

    def finish(self, number: int, timeout: float = _TIME_LIMIT) -> tuple[int, Any]:
        """Waits for a call. TimeoutError when it takes longer, EOFError when the process has ended."""
        deadline = time.monotonic() + timeout
        while number not in self._answers:
            self._receive(deadline - time.monotonic())
        return self._answers.pop(number)

    def is_blocked(self, number: int, seconds: float = 0.15) -> bool:
        """True when the call is still under way after that time."""
        try:
            self._answers[number] = self.finish(number, seconds)
        except TimeoutError:
            return True
        return False

    def call(self, call: str, /, **arguments: Any) -> tuple[int, Any]:
        return self.finish(self.begin(call, **arguments))

    def must(self, call: str, /, **arguments: Any) -> Any:
        """The value of a call that has to succeed."""
        code, value = self.call(call, **arguments)
        assert code == 0, f"{call} gave {code}"
        return value

    def _receive(self, timeout: float) -> None:
        stdout = self.process.stdout
        assert stdout is not None
        readable, _, _ = select.select([stdout], [], [], max(timeout, 0))
        if not readable:
            raise TimeoutError("the call has not returned")
        received = stdout.read1(1 << 16)  # type: ignore[attr-defined]
        if not received:
            raise EOFError("the process has ended")
        *lines, self._pending = (self._pending + received).split(b"\n")
        for line in lines:
            answer = json.loads(line)
            self._answers[answer["number"]] = (answer["code"], answer["value"])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_TIME_LIMIT)

    def __enter__(self) -> "Puppet":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.kill()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass


def start_job(emulator: Emulator, *sizes: int, **options: Any) -> Puppet:
    """A puppet with a context on device 0 and an allocation of each size, filled with bytes by its index."""
    job = Puppet(emulator, **options)
    try:
        job.must("init")
        job.must("create_context", device=0)
        for seed, size in enumerate(sizes):
            job.must("fill", pointer=job.must("allocate", size=size), size=size, seed=seed)
    except BaseException:
        job.__exit__(None, None, None)
        raise
    return job


def start_agent(emulator: Emulator, **options: Any) -> Puppet:
    """A puppet that has called cuInit and has no context: one that acts on others."""
    agent = Puppet(emulator, **options)
    try:
        agent.must("init")
    except BaseException:
        agent.__exit__(None, None, None)
        raise
    return agent
