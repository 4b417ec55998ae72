"""Starts a daemon as a real process of its own, for as long as a ``with`` block lasts."""

import functools
import json
import os
import select
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from gpu_emulator.codes import FIRST_DRIVER_WITH_CHECKPOINT_API, driver_branch
from gpu_emulator.control import Control
from gpu_emulator.faults import Fault
from gpu_emulator.hiding import hide_symbols

HOME = Path(__file__).resolve().parent.parent
_START_LIMIT = 20.0  # seconds
_STOP_LIMIT = 5.0


class EmulatorError(Exception):
    """The daemon did not start; the message holds what it said."""


@functools.cache
def build_libraries() -> Path:
    """Builds the C libraries where they are older than their sources, and returns their folder."""
    build = subprocess.run(
        [str(HOME / "build")],
        env={**os.environ, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if build.returncode != 0:
        raise EmulatorError(f"the emulator's libraries cannot be built:\n{build.stderr}")
    return HOME / "lib"


class Emulator(Control):
    """Emulated GPUs for the processes that are started with ``env``.

    The daemon ends with the block, and also when this process dies. Everything of ``Control`` works inside the block.
    """

    def __init__(
        self,
        *,
        gpus: int = 1,
        memory: int = 256 << 20,
        faults: Sequence[Fault | Mapping[str, Any]] = (),
        bandwidth_out: int = 0,
        bandwidth_in: int = 0,
        driver_version: str = "570.86",
        context_overhead: int = 2 << 20,
        hide: Sequence[str] = (),
        dev_root: Path | None = None,
        mig: bool = False,
        collective_window: float = 0.25,
        uuid_seed: str | None = None,
        name: str | None = None,
        socket_path: Path | None = None,
        trace: Path | None = None,
    ) -> None:
        """Sizes in bytes, bandwidths in bytes per second (0: without limit), ``collective_window`` in seconds.

        ``hide`` holds shell patterns of symbols that the libraries are to lack; before driver 570 the checkpoint API is
        lacking anyway. ``trace`` is a file that every context, checkpoint call, fault and end is appended to.
        """
        self._folder = tempfile.TemporaryDirectory(prefix="gpu-emulator-")
        folder = Path(self._folder.name)
        self.socket_path = socket_path or folder / "socket"
        super().__init__(self.socket_path)
        self.log_path = folder / "daemon.log"
        self.dev_root = dev_root or folder / "dev"
        self._hide = list(hide)
        if driver_branch(driver_version) < FIRST_DRIVER_WITH_CHECKPOINT_API:
            self._hide.append("cuCheckpoint*")
        entries = [fault.to_json() if isinstance(fault, Fault) else dict(fault) for fault in faults]
        (folder / "faults.json").write_text(json.dumps(entries))
        self._options = {
            "--socket": self.socket_path,
            "--gpus": gpus,
            "--memory": memory,
            "--bandwidth-out": bandwidth_out,
            "--bandwidth-in": bandwidth_in,
            "--driver-version": driver_version,
            "--context-overhead": context_overhead,
            "--dev-root": self.dev_root,
            "--faults": folder / "faults.json",
            "--collective-window": collective_window,
            "--uuid-seed": uuid_seed or folder.name,
            **({"--name": name} if name else {}),
            **({"--trace": trace} if trace else {}),
        }
        self._flags = ["--mig"] if mig else []
        self._libraries = HOME / "lib"
        self._process: subprocess.Popen[bytes] | None = None
        self._lifeline: socket.socket | None = None

    @property
    def pid(self) -> int:
        """Process id of the daemon."""
        if self._process is None:
            raise EmulatorError("the emulator has not been started")
        return self._process.pid

    @property
    def libraries(self) -> Path:
        """Folder with libcuda.so.1 and libnvidia-ml.so.1."""
        return self._libraries

    @property
    def variables(self) -> dict[str, str]:
        """What a process needs in its environment to see these GPUs; search paths go before the present ones."""

        def prefixed(folder: Path, variable: str) -> str:
            return os.pathsep.join(filter(None, [str(folder), os.environ.get(variable)]))

        return {
            "GPU_EMULATOR_SOCKET": str(self.socket_path),
            "LD_LIBRARY_PATH": prefixed(self._libraries, "LD_LIBRARY_PATH"),
            "PATH": prefixed(HOME / "bin", "PATH"),
        }

    @property
    def env(self) -> dict[str, str]:
        """The environment of this process with ``variables``."""
        return {**os.environ, **self.variables}

    def start(self) -> None:
        """Starts the daemon and returns when it answers. EmulatorError when it does not."""
        self._libraries = build_libraries()
        if self._hide:
            self._libraries = hide_symbols(self._libraries, self._hide, Path(self._folder.name) / "lib")
        self._lifeline, theirs = socket.socketpair()
        command = [sys.executable, "-m", "gpu_emulator", "--lifeline", str(theirs.fileno()), *self._flags]
        for option, value in self._options.items():
            command += [option, str(value)]
        with theirs, self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                env={**os.environ, "PYTHONPATH": str(HOME)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
            )
        readable, _, _ = select.select([self._lifeline], [], [], _START_LIMIT)
        if not readable or self._lifeline.recv(1) != b"r":
            self.stop()
            raise EmulatorError(f"the emulator did not start: {self.log_path.read_text()}")

    def stop(self) -> None:
        """Ends the daemon; killing it when it does not go by itself."""
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None
        if self._process is None:
            return
        try:
            self._process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(_STOP_LIMIT)

    def kill(self) -> None:
        """SIGKILL to the daemon: what a driver that is unloaded under its processes looks like."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(_STOP_LIMIT)

    def __enter__(self) -> "Emulator":
        try:
            self.start()
        except BaseException:
            self._folder.cleanup()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self._folder.cleanup()
