"""The command `timeslice` in processes of its own, and the whole platform on an emulated GPU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from gpu_emulator.emulator import Emulator
from timeslice.channel import open_channel
from timeslice.cli.table import as_json
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc

TIMESLICE = Path(sys.executable).with_name("timeslice")
GPU_JOB = Path(__file__).with_name("gpu_job.py")
DEVICE_BYTES = 48 << 20
JOB_BYTES = 28 << 20  # two of them do not fit


def environment(extra: Mapping[str, str] = {}) -> dict[str, str]:
    """This one's, without what would configure a client."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TIMESLICE_")}
    return {**clean, **extra}


def timeslice(
    *arguments: str, env: Mapping[str, str] | None = None, timeout: float = 20
) -> subprocess.CompletedProcess[str]:
    """Runs the command to its end."""
    return subprocess.run(
        [str(TIMESLICE), *arguments],
        env=dict(env if env is not None else environment()),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


class Running:
    """A command in the background whose lines are read as they come."""

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            arguments,
            env=dict(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self.errors: list[str] = []
        self._news = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(stream, lines), daemon=True)
            for stream, lines in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, stream: IO[str] | None, lines: list[str]) -> None:
        assert stream is not None
        with stream:
            for line in stream:
                with self._news:
                    lines.append(line.rstrip("\n"))
                    self._news.notify_all()
        with self._news:
            self._news.notify_all()

    def says(self, text: str, within_s: float = 20) -> str:
        """The first line that contains the text."""

        def found() -> str | None:
            return next((line for line in self.lines if text in line), None)

        with self._news:
            self._news.wait_for(lambda: found() or not self._readers[0].is_alive(), within_s)
            line = found()
        assert line is not None, f"{text!r} was not said:\n{self.lines}\n{self.errors}"
        return line

    def ends(self, status: int = 0, within_s: float = 20) -> list[str]:
        """Waits for the end; what was said."""
        self.process.wait(within_s)
        for reader in self._readers:
            reader.join(5)
        assert self.process.returncode == status, f"{self.lines}\n{self.errors}"
        return self.lines

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Sends a signal, and kills what does not end of itself, with all that it started."""
        if self.process.poll() is None:
            self.process.send_signal(number)
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(5)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        for reader in self._readers:
            reader.join(5)


class Platform:
    """`timeslice up` on an emulated GPU of 48 MiB."""

    def __init__(self, folder: Path, emulator: Emulator, *options: str) -> None:
        self.state_dir = folder / "s"
        self.emulator = emulator
        self.env = environment({**emulator.variables, "TIMESLICE_STATE_DIR": str(self.state_dir)})
        self._options = options
        self._jobs: list[Running] = []
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it is ready."""
        dev_root = ("--dev-root", str(self.emulator.dev_root))
        self.up = Running([str(TIMESLICE), "up", *dev_root, *self._options], self.env)
        self.up.says("# ready")

    def job(self, name: str, *command: str, group: str = "trainer-group", hold: bool = False) -> Running:
        """`timeslice run` in the background."""
        options = ["--hold"] if hold else []
        running = Running([str(TIMESLICE), "run", "--job", name, "--group", group, *options, "--", *command], self.env)
        self._jobs.append(running)
        return running

    def gpu_job(self, name: str, *, size: int = JOB_BYTES, phases: int = 3, phase_s: float = 0.1) -> Running:
        """A job with that many bytes in device memory."""
        return self.job(name, sys.executable, str(GPU_JOB), str(size), str(phases), str(phase_s))

    def timeslice(self, *arguments: str, timeout: float = 20) -> subprocess.CompletedProcess[str]:
        """Runs a command that finds the platform by its state directory."""
        return timeslice(*arguments, env=self.env, timeout=timeout)

    def group(self) -> dict[str, Any]:
        """The group now, as `timeslice status --json` shows it."""
        with open_channel(f"unix://{self.state_dir}/orchestrator.sock") as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            return as_json(stub.GetGroup(orchestrator_pb2.GetGroupRequest(group_id="trainer-group"), timeout=10))

    def end_jobs(self) -> None:
        """Ends what a test left running."""
        for job in self._jobs:
            job.stop(signal.SIGKILL)
        self._jobs.clear()

    def close(self) -> None:
        """Ends everything."""
        self.end_jobs()
        self.up.stop()


@contextlib.contextmanager
def started(*options: str) -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="ts-") as folder, Emulator(memory=DEVICE_BYTES) as emulator:
        platform = Platform(Path(folder), emulator, *options)
        try:
            yield platform
        finally:
            platform.close()
