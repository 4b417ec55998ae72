"""The emulated GPU and the embedded platform: `timeslice up` as a real process, as a user would start it."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from gpu_emulator import Emulator

GROUP = "gpu"
START_S = 30.0
STOP_S = 10.0
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class PlatformError(Exception):
    """The platform did not start; the message has what it said."""


@dataclass(frozen=True)
class Platform:
    """Where jobs find it. `variables` are what a job needs in its environment besides its own name."""

    emulator: Emulator
    address: str
    variables: Mapping[str, str]

    def job_env(self, job: str) -> dict[str, str]:
        """Environment of a job that takes turns."""
        return {**self.emulator.env, **self.variables, "TIMESLICE_JOB_ID": job, "TIMESLICE_GROUP_ID": GROUP}

    def unmanaged_env(self) -> dict[str, str]:
        """Environment of a job that does not."""
        return {**self.emulator.env, "TIMESLICE_MODE": "off"}


@contextmanager
def platform(folder: Path, *, memory: int, bandwidth: int) -> Iterator[Platform]:
    """Starts both in that folder, and ends them.

    Args:
        folder: for state, sockets and logs; a short path, since sockets lie in it.
        memory: of the GPU, in bytes.
        bandwidth: of parking and of restoring, in bytes per second.
    """
    with Emulator(memory=memory, bandwidth_out=bandwidth, bandwidth_in=bandwidth) as emulator:
        state = folder / "state"
        log = folder / "platform.log"
        with log.open("wb") as errors, _up(state, emulator.env, errors.fileno()) as process:
            _await_ready(process, log)
            address = f"unix://{state / 'orchestrator.sock'}"
            sockets = {"TIMESLICE_ORCHESTRATOR": address, "TIMESLICE_NODE_SOCKET": str(state / "node.sock")}
            yield Platform(emulator, address, sockets)


@contextmanager
def _up(state: Path, env: Mapping[str, str], errors: int) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("timeslice")), "up", "--state-dir", str(state), "--group", GROUP],
        env=dict(env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=errors,
        start_new_session=True,
        preexec_fn=_dies_with_parent(),  # safe: no thread has been started yet
    )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def _dies_with_parent() -> Callable[[], None]:
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_DIE_WITH_PARENT, signal.SIGTERM)


def _await_ready(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.stdout is not None
    heard, _, _ = select.select([process.stdout], [], [], START_S)
    if not heard or not os.read(process.stdout.fileno(), 4096):
        raise PlatformError(f"`timeslice up` did not start:\n{log.read_text(errors='replace')}")
