"""An orchestrator and nodes as programs of their own, each node with an emulated GPU, and jobs that obey a test."""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any

from embedded import DEVICE_BYTES, JOB_BYTES, TIMESLICE, Running, environment
from gpu_emulator.emulator import Emulator
from gpu_emulator.faults import Fault
from patience import eventually
from timeslice.channel import open_channel
from timeslice.cli.table import as_json
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc

STEPPED_JOB = Path(__file__).with_name("stepped_job.py")
GROUP = "trainer-group"


class Job:
    """One process of a job. `tell` starts a step, `hears` waits for its answer."""

    def __init__(self, job_id: str, env: dict[str, str], size: int) -> None:
        # The name is no part of the environment, by which the nodes of one machine would claim each other's processes.
        self.process = subprocess.Popen(
            [sys.executable, str(STEPPED_JOB), job_id, str(size)],
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: Queue[str] = Queue()
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        with self.process.stdout as lines:
            for line in lines:
                self._answers.put(line.rstrip("\n"))

    def tell(self, step: str) -> None:
        """Starts a step."""
        assert self.process.stdin
        self.process.stdin.write(step + "\n")
        self.process.stdin.flush()

    def hears(self, within_s: float = 20) -> str:
        """The answer to the oldest step without one."""
        try:
            return self._answers.get(timeout=within_s)
        except Empty:
            raise AssertionError("the step has not come to an end") from None

    def waits(self, seconds: float = 0.3) -> bool:
        """Whether nothing has been answered after that time."""
        time.sleep(seconds)
        return self._answers.empty()

    def does(self, *steps: str) -> None:
        """Steps that have to succeed, one after the other."""
        for step in steps:
            self.tell(step)
            answer = self.hears()
            assert answer == f"done {step}", answer

    def end(self) -> int:
        """An end in order."""
        self.tell("end")
        return self.process.wait(10)

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(10)
        self._reader.join(5)
        if self.process.stdin:
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()


class Machine:
    """A node and its GPU."""

    def __init__(self, folder: Path, name: str, options: Sequence[str]) -> None:
        self.name = name
        self.emulator = Emulator(memory=DEVICE_BYTES, uuid_seed=name)
        self._state = folder / name
        self._options = ("--node-name", name, "--group", GROUP, *options)
        self.env: dict[str, str] = {}

    def start(self) -> None:
        """Starts the node; the GPU is on already."""
        self.env = environment(
            {
                **self.emulator.variables,
                "TIMESLICE_STATE_DIR": str(self._state),
                "TIMESLICE_NODE_SOCKET": str(self._state / "node.sock"),
            }
        )
        dev_root = ("--dev-root", str(self.emulator.dev_root))
        self.node = Running([str(TIMESLICE), "node", *self._options, *dev_root], self.env)
        self.node.says("export TIMESLICE_NODE_SOCKET=")

    def gpu_state(self, job: Job) -> str:
        """Where the GPU says that a process is: running, locked, checkpointed or failed."""
        for process in self.emulator.snapshot()["processes"]:
            if process["pid"] == job.process.pid:
                return str(process["state"]).lower()
        return ""

    def kill_node(self) -> None:
        """SIGKILL, of it and its helpers."""
        self.node.stop(signal.SIGKILL)

    def inject(self, call: str, **what: Any) -> None:
        """A fault of the GPU."""
        self.emulator.inject(Fault(call, **what))


class Cluster:
    """The orchestrator, its machines and their jobs."""

    def __init__(self, folder: Path, names: Sequence[str], *options: str, address: str = "") -> None:
        self._state = folder / "o"
        self.address = address or f"unix://{self._state}/orchestrator.sock"
        self.machines = [Machine(folder, name, (*options, "--orchestrator", self.address)) for name in names]
        self._jobs: list[Job] = []

    def start(self, *options: str) -> None:
        """Starts the orchestrator."""
        self.orchestrator = self.started(*options)
        self.orchestrator.says("export TIMESLICE_ORCHESTRATOR=")

    def started(self, *options: str) -> Running:
        """A process of an orchestrator on the cluster's state directory."""
        env = environment({"TIMESLICE_STATE_DIR": str(self._state)})
        return Running([str(TIMESLICE), "orchestrator", *options], env)

    def replace_orchestrator(self, state: Path) -> Path:
        """Another one begins on a copy of the state, which is made there, whatever the old one does; its socket."""
        shutil.copytree(self._state, state, ignore=shutil.ignore_patterns("*.sock*", "lock"))
        self._state = state
        self.start()
        return state / "orchestrator.sock"

    def kill(self) -> None:
        """SIGKILL of the orchestrator."""
        self.orchestrator.stop(signal.SIGKILL)

    def job(self, job_id: str, machine: int = 0, *, size: int = JOB_BYTES) -> Job:
        """A process of a job on one of the machines."""
        own = {"TIMESLICE_ORCHESTRATOR": self.address, "TIMESLICE_GROUP_ID": GROUP}
        job = Job(job_id, {**self.machines[machine].env, **own}, size)
        self._jobs.append(job)
        return job

    def group(self) -> dict[str, Any]:
        """The group now."""
        with open_channel(self.address) as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            return as_json(stub.GetGroup(orchestrator_pb2.GetGroupRequest(group_id=GROUP), timeout=10))

    def states(self, job_id: str) -> list[str]:
        """States of a job's parts, in the order of the machines' names."""
        return [
            part["state"]
            for member in self.group()["members"]
            if member["job_id"] == job_id
            for part in sorted(member["parts"], key=lambda part: str(part["node"]))
        ]

    def waits(self, *jobs: Job) -> None:
        """Has processes ask for the group, and returns when all are in the queue."""
        for job in jobs:
            job.tell("acquire")
        eventually(lambda: len(self.group()["waiters"]) >= len(jobs))

    def mend(self) -> None:
        """What the next test may rely on: everything runs, nothing is in use, nothing will fail."""
        for machine in self.machines:
            machine.emulator.clear_faults()
        for job in self._jobs:
            job.kill()
        self._jobs.clear()
        if self.orchestrator.process.poll() is not None:
            self.start()
        for machine in self.machines:
            if machine.node.process.poll() is not None:
                machine.start()
        eventually(lambda: all(device["connected"] for device in self.group()["devices"]))
        eventually(lambda: not any(self.group()[use] for use in ("members", "holders", "waiters")), within_s=40)

    def close(self) -> None:
        """Ends everything."""
        for job in self._jobs:
            job.kill()
        for machine in self.machines:
            machine.node.stop()
        self.orchestrator.stop()


@contextlib.contextmanager
def started_cluster(folder: Path, *names: str, cgroup_root: Path | None = None, address: str = "") -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        options = ("--cgroup-root", str(cgroup_root)) if cgroup_root else ()
        cluster = Cluster(folder, names, *options, address=address)
        for machine in cluster.machines:
            stack.enter_context(machine.emulator)
        cluster.start()
        stack.callback(cluster.close)
        for machine in cluster.machines:
            machine.start()
        yield cluster
