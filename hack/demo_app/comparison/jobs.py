"""Training jobs as processes: started early, held at a common start line, and heard until they end."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import TypeAlias

from comparison.measures import Event
from comparison.plan import JobSpec, Run

STOP_S = 5.0  # after a polite request to end, before the kill


@dataclass(frozen=True)
class Told:
    """An event of a job in a run."""

    run: str
    job: str
    event: Event


Ears: TypeAlias = "SimpleQueue[Told]"


class JobError(Exception):
    """A job ended as it should not; the message has the end of what it said."""


class JobProcess:
    """One job of one run. Everything that it tells arrives in `ears`, at last its `exit`."""

    def __init__(self, run: Run, spec: JobSpec, *, core: int, env: Mapping[str, str], log: Path, ears: Ears) -> None:
        self.run, self.spec = run, spec
        self._log = log
        command = [sys.executable, "-P", "-m", "grpo", "--wait", "--core", str(core), "--steps", str(run.steps)]
        command += ["--task", spec.task, "--seed", str(spec.seed)]
        with log.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                env={**env, "TMPDIR": str(log.parent)},  # what it leaves there when it is killed goes with the run
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self._reader = threading.Thread(target=self._listen, args=(ears,), name=f"ears of {spec.name}", daemon=True)
        self._reader.start()

    def go(self) -> None:
        """Lets it start. Its standard input stays open: when that ends, because we did, so does the job."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended: its `exit` tells that
            os.write(self._process.stdin.fileno(), b"go\n")

    def failure(self, code: int) -> JobError:
        """Why it ended with that exit status, as far as its log tells."""
        said = self._log.read_text(errors="replace").strip().splitlines()[-15:]
        return JobError("\n".join([f"{self.spec.name} ({self.run.name}) ended with status {code}", *said]))

    def stop(self) -> None:
        """Ends it, when it has not ended by itself."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.poll() is None:
            self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(STOP_S)

    def _listen(self, ears: Ears) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                ears.put(Told(self.run.name, self.spec.name, json.loads(line)))
        code = self._process.wait()
        ears.put(Told(self.run.name, self.spec.name, {"event": "exit", "t": time.monotonic(), "code": code}))
