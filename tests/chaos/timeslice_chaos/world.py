"""An orchestrator, nodes with emulated GPUs, and jobs, all as real processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
from gpu_emulator.emulator import Emulator
from timeslice.channel import open_channel
from timeslice.cli.table import as_json
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc

from timeslice_chaos.host import HostMemory
from timeslice_chaos.job import GRANTED
from timeslice_chaos.log import Log
from timeslice_chaos.process import START_S, ChaosError, Process, eventually
from timeslice_chaos.proxy import Proxy

DEVICE_BYTES, JOB_BYTES = 14 << 20, 6 << 20  # with its context a job has 8 MiB: two do not fit
_PACKAGES = str(Path(__file__).parents[1])
MARK = "TIMESLICE_CHAOS_WORLD"  # in the environment of every process of a world

# Nodes find processes by the names in their environments, too; other worlds on this machine have other names.
# (job, machine) of every process of a job: two jobs span both machines, one is on one.
RANKS = (("a", 0), ("a", 1), ("b", 0), ("b", 1), ("c", 1))
MACHINES = 2


class World:
    """Use `living`. Everything is below one folder: logs, sockets, state.

    Args:
        standby: a second orchestrator waits for the end of the first one.
    """

    def __init__(self, folder: Path, *, standby: bool = False) -> None:
        self.folder = folder
        self.logs = folder / "logs"
        self.logs.mkdir()
        self.mark = uuid.uuid4().hex[:12]
        self.group_id = f"group-{self.mark}"
        self.log = Log(self.logs, "world")
        self.host = HostMemory(folder / "cgroup")
        self._state = folder / "o"
        self.emulators = [self._emulator(index) for index in range(MACHINES)]
        self.proxies = [Proxy(folder / f"link-{index}.sock", self.socket) for index in range(MACHINES)]
        self.jobs_proxy = Proxy(folder / "link-jobs.sock", self.socket)
        names = ("orchestrator-0", "orchestrator-1") if standby else ("orchestrator",)
        self.orchestrators = [self._orchestrator(name, standby=standby) for name in names]
        self.nodes = [self._node(index) for index in range(MACHINES)]
        self.jobs = [self._job(*rank) for rank in RANKS]

    def _emulator(self, index: int) -> Emulator:
        return Emulator(memory=DEVICE_BYTES, uuid_seed=f"{self.mark}-{index}", trace=self.logs / f"gpu-{index}.jsonl")

    def _env(self, **own: str) -> dict[str, str]:
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TIMESLICE_")}
        path = os.pathsep.join(filter(None, [_PACKAGES, os.environ.get("PYTHONPATH")]))
        return {**clean, "PYTHONPATH": path, "GRPC_ENABLE_FORK_SUPPORT": "0", MARK: self.mark, **own}

    @property
    def socket(self) -> Path:
        """Of the orchestrator."""
        return self._state / "orchestrator.sock"

    def _orchestrator(self, name: str, *, standby: bool = False) -> Process:
        env = self._env(TIMESLICE_STATE_DIR=str(self._state))
        return Process(name, "orchestrator", ["--standby"] if standby else [], env=env, logs=self.logs)

    @property
    def orchestrator(self) -> Process:
        """The one that leads; one of them while none does."""
        return next((each for each in self.orchestrators if _leads(each)), self.orchestrators[0])

    def _await_leader(self) -> None:
        if not eventually(lambda: any(map(_leads, self.orchestrators)), START_S):
            raise ChaosError(f"no orchestrator leads; their words are in {self.orchestrator.words}")

    def forget_state(self) -> None:
        """The orchestrators die, and find nothing of what they kept."""
        for orchestrator in self.orchestrators:
            orchestrator.kill(self.log)
        shutil.rmtree(self._state / "orchestrator", ignore_errors=True)

    def replace_orchestrator(self) -> Process:
        """Another one takes over, on a copy of the state, while the old one is stopped; that one is returned."""
        old, old_state = self.orchestrator, self._state
        old.stop()
        self._state = self.folder / "o2"
        shutil.copytree(old_state, self._state, ignore=shutil.ignore_patterns("*.sock*", "lock"))
        self.orchestrators = [self._orchestrator("orchestrator-2")]
        self.orchestrator.start()
        self._await_leader()
        for proxy in self.links:
            proxy.lead_to(self.socket)
        return old

    def _node(self, index: int) -> Process:
        emulator, name = self.emulators[index], f"node-{index}"
        env = self._env(**emulator.variables, TIMESLICE_STATE_DIR=str(self.folder / name))
        link = f"unix://{self.proxies[index].path}"
        arguments = ["--node-name", name, "--group", self.group_id, "--orchestrator", link]
        arguments += ["--dev-root", str(emulator.dev_root), "--cgroup-root", str(self.host.root)]
        return Process(name, "node", arguments, env=env, logs=self.logs, ready="export TIMESLICE_NODE_SOCKET=")

    def _job(self, name: str, index: int) -> Process:
        job_id = f"{name}-{self.mark}"
        own = {
            **self.emulators[index].variables,
            "TIMESLICE_ORCHESTRATOR": f"unix://{self.jobs_proxy.path}",
            "TIMESLICE_NODE_SOCKET": str(self.folder / f"node-{index}" / "node.sock"),
            "TIMESLICE_GROUP_ID": self.group_id,
        }
        return Process(f"{job_id}-{index}", "job", [job_id, str(JOB_BYTES)], env=self._env(**own), logs=self.logs)

    @property
    def links(self) -> list[Proxy]:
        """Of the nodes, and the one that all jobs share."""
        return [*self.proxies, self.jobs_proxy]

    @property
    def processes(self) -> list[Process]:
        """All, the platform's first."""
        return [*self.orchestrators, *self.nodes, *self.jobs]

    def start(self) -> None:
        """Starts everything."""
        for emulator in self.emulators:
            emulator.start()
        for process in self.processes:
            process.start()
        self._await_leader()
        for process in self.processes:
            process.wait_ready()

    def mend(self) -> list[str]:
        """Starts again what has ended, and lets go on what was stopped; the names of those that had ended."""
        for emulator in self.emulators:
            emulator.clear_faults()
        ended = [process for process in self.processes if process.status is not None]
        for process in self.processes:
            if process.stopped:
                process.go_on()
        for process in ended:
            self.log.say("ended", pid=process.pid, name=process.name, status=process.reap())
            process.start()
        self._await_leader()
        for process in ended:
            process.wait_ready()
        return [process.name for process in ended]

    def settle(self) -> None:
        """Nothing more is to be waited for: `mend` has."""

    def served(self, since: float, within_s: float) -> float | None:
        """When every process of a job had been granted after `since`; None when some were not in time."""
        until = time.monotonic() + within_s
        times = []
        for job in self.jobs:
            at = job.says(GRANTED, since=since, within_s=max(0.0, until - time.monotonic()))
            if at is None:
                return None
            times.append(at)
        return max(times)

    def group(self) -> dict[str, Any]:
        """The group, as people see it. ChaosError when the orchestrator does not answer."""
        try:
            with open_channel(f"unix://{self.socket}") as channel:
                stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
                return as_json(stub.GetGroup(orchestrator_pb2.GetGroupRequest(group_id=self.group_id), timeout=5))
        except grpc.RpcError as error:
            raise ChaosError(f"the orchestrator does not answer: {error}") from error

    def end_jobs(self) -> None:
        """Every job ends in order."""
        for job in self.jobs:
            job.go_on()
            if status := job.end():
                raise ChaosError(f"{job.name} ended with status {status}; its words are in {job.words}")

    def is_idle(self) -> bool:
        """Whether nobody is, holds, or waits in the group."""
        group = self.group()
        return not any(group[use] for use in ("members", "holders", "waiters"))

    def end(self) -> list[str]:
        """Ends everything in order. What is left behind, in words."""
        self.end_jobs()
        left = [] if eventually(self.is_idle, 15) else [f"the group is in use: {self.group()}"]
        left += [self._used(emulator) for emulator in self.emulators if emulator.snapshot()["devices"][0]["used"]]
        for process in (*self.nodes, *self.orchestrators):
            if status := process.end():
                left.append(f"{process.name} ended with status {status}")
        return [*left, *self._files_left(), *self._processes_left()]

    def _used(self, emulator: Emulator) -> str:
        return f"device memory is in use: {emulator.snapshot()}"

    def _files_left(self) -> Iterator[str]:
        for pattern in ("*/*.sock", "**/*.tmp", "**/*.corrupt-*"):
            yield from (f"{path} is left" for path in self.folder.glob(pattern))

    def _processes_left(self) -> Iterator[str]:
        """By a mark in their environment: whoever started them."""
        mark = f"{MARK}={self.mark}".encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes():
                    yield f"process {entry.name} is left: {(entry / 'cmdline').read_bytes()!r}"

    def close(self) -> None:
        """Kills what still lives."""
        for process in reversed(self.processes):
            with contextlib.suppress(AssertionError, subprocess.TimeoutExpired):
                process.kill(self.log)
        for proxy in self.links:
            proxy.close()
        for emulator in self.emulators:
            emulator.__exit__(None, None, None)
        self.log.close()


def _leads(orchestrator: Process) -> bool:
    says = orchestrator.says("export TIMESLICE_ORCHESTRATOR=", within_s=0)
    return says is not None and orchestrator.status is None


@contextlib.contextmanager
def living(folder: Path, *, standby: bool = False) -> Iterator[World]:
    """A world whose processes all run; none of them outlives the block."""
    world = World(folder, standby=standby)
    try:
        world.start()
        yield world
    finally:
        world.close()
