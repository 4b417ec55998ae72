"""Makes a fault happen to a world."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from gpu_emulator.emulator import Emulator
from gpu_emulator.faults import Fault as GpuFault

from timeslice_chaos.armory import Arm
from timeslice_chaos.deck import HOLD, Fault
from timeslice_chaos.log import Event, read
from timeslice_chaos.process import ChaosError, Process, eventually
from timeslice_chaos.proxy import Mode
from timeslice_chaos.world import World

REACH_S = 12.0  # how long a named point may take to be reached
_FOUND_S = 5.0
_HOLD_S = 3.0  # so long a job holds while something happens: less than its lease lasts without a renewal
_CALL_MS = 1000.0  # so long a call of the GPU takes in which something is to happen
_CHILD_S = 4.0
_SMALL_LIMIT = 1 << 20  # bytes, of a cgroup
_T = TypeVar("_T")


class Striker:
    """Strikes with the choices of a seed. Each `strike` says whether the fault has happened, and returns when its time
    is over; what it broke is for `World.mend`."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self._emulator = self._chance.randrange(len(world.emulators))  # the one that a fault is about
        self._mover = 0  # pid of the job whose call of it is under way, when one is

    def strike(self, fault: Fault) -> bool:
        """Returns when it has struck and its seconds are over; False when its moment did not come."""
        self._world.log.say("strikes", kind=fault.kind, where=fault.where)
        struck = self._at_point(fault) if fault.arm else self._at_once(fault)
        self._world.log.say("struck" if struck else "missed", kind=fault.kind, where=fault.where)
        return struck

    def _at_point(self, fault: Fault) -> bool:
        assert fault.arm
        process = self._choose(self._of_role(fault.role))
        # Some points are reached only by a start, or by a fault of another kind.
        provoke = _PROVOCATIONS.get(fault.arm.point)
        if provoke:
            provoke(self, process)
        if process.struck(fault.arm, within_s=REACH_S) is None:
            return False
        if fault.kind == "stop":
            process.stopped = True
        if fault.kind == "kill":
            return eventually(lambda: process.status is not None, _FOUND_S)
        time.sleep(fault.seconds)
        return True

    def _at_once(self, fault: Fault) -> bool:
        if fault.during and not self._has_come(fault.during):
            return False
        return _WAYS[fault.kind](self, fault)

    def _has_come(self, during: str) -> bool:
        if during == HOLD:
            job = self._choose(self._world.jobs)
            return job.struck(Arm("writes", "delay", seconds=_HOLD_S), within_s=REACH_S) is not None
        return self._hits(GpuFault(during, nth=1, delay_ms=_CALL_MS))

    def _kill(self, fault: Fault) -> bool:
        return self._signal(fault, signal.SIGKILL)

    def _stop(self, fault: Fault) -> bool:
        return self._signal(fault, signal.SIGSTOP)

    def _signal(self, fault: Fault, number: signal.Signals) -> bool:
        pid = self._someone(fault.role)
        if pid is None:
            return False
        self._world.log.say("kills" if number is signal.SIGKILL else "stops", pid=pid, name=fault.role)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            if number is signal.SIGSTOP:
                time.sleep(fault.seconds)
                os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        return True

    def _clock(self, fault: Fault) -> bool:
        self._choose(self._of_role(fault.role)).tell(f"clock {fault.seconds}")
        return True

    def _full(self, fault: Fault) -> bool:
        """No file of the process may grow: a write fails as on a full disk (EFBIG in place of ENOSPC)."""
        process = self._choose(self._of_role(fault.role))
        with contextlib.suppress(ProcessLookupError):
            before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
            time.sleep(fault.seconds)
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)
        return True

    def _link(self, fault: Fault) -> bool:
        proxy = self._world.jobs_proxy if fault.role == "jobs" else self._choose(self._world.proxies)
        proxy.set(Mode(fault.mode), delay_s=0.03 if fault.point == "slow" else 0.0)
        time.sleep(fault.seconds)
        proxy.set(Mode.OPEN)
        return True

    def _gpu(self, fault: Fault) -> bool:
        return self._hits(GpuFault(**fault.gpu))

    def _hits(self, fault: GpuFault) -> bool:
        """Whether somebody makes the call that the fault is for."""
        self._world.emulators[self._emulator].inject(fault)
        trace, began = self._world.logs / f"gpu-{self._emulator}.jsonl", time.monotonic()
        hit: list[int] = []

        def look() -> bool:
            hit[:] = [event.pid for event in read(trace.parent, trace.name) if _was_told(event, since=began)]
            return bool(hit)

        if not eventually(look, REACH_S):
            return False
        self._mover = hit[0]
        return True

    def _memory(self, fault: Fault) -> bool:
        self._world.host.limit(_SMALL_LIMIT)
        time.sleep(fault.seconds)
        self._world.host.limit(None)
        return True

    def _lost(self, _fault: Fault) -> bool:
        """The disk under the orchestrator's state was not the one it had."""
        self._world.forget_state()
        return True

    def _newcomer(self, _fault: Fault) -> bool:
        """The node has looked who is there, and stops before it locks them; then there is one more."""
        node, emulator = self._world.nodes[self._emulator], self._world.emulators[self._emulator]
        if node.struck(Arm("locked", "stop"), within_s=REACH_S) is None:
            return False
        node.stopped = True
        before = {process["pid"] for process in emulator.snapshot()["processes"]}
        [*leaving] = [job for job in self._world.jobs if job.pid in _running(emulator)]
        for job in leaving:
            job.tell(f"child {_CHILD_S}")
        came = leaving and eventually(lambda: _running(emulator) - before, _FOUND_S)
        node.go_on()
        return bool(came)

    def _of_role(self, role: str) -> list[Process]:
        world = self._world
        return {"orchestrator": [world.orchestrator], "node": world.nodes, "job": world.jobs}[role]

    def _someone(self, role: str) -> int | None:
        """A pid of that role at this moment."""
        if role in ("orchestrator", "node", "job"):
            return self._choose(self._of_role(role)).pid
        find: dict[str, Callable[[], Sequence[int]]] = {
            "helper": self._helpers,
            "holder": lambda: self._jobs_in("holders"),
            "waiter": lambda: self._jobs_in("waiters"),
            "parked": self._parked,
            "mover": lambda: [self._mover],
        }
        until = time.monotonic() + _FOUND_S
        while not (found := find[role]()):
            if time.monotonic() > until:
                return None
            time.sleep(0.02)
        return self._choose(found)

    def _helpers(self) -> list[int]:
        return [*_children(self._world.nodes[self._emulator].pid)]

    def _jobs_in(self, use: str) -> list[int]:
        try:
            named = {entry["job_id"] for entry in self._world.group()[use]}
        except ChaosError:
            return []
        return [job.pid for job in self._world.jobs if job.name.rpartition("-")[0] in named]

    def _parked(self) -> list[int]:
        snapshots = [emulator.snapshot() for emulator in self._world.emulators]
        return [p["pid"] for each in snapshots for p in each["processes"] if p["state"] == "CHECKPOINTED"]

    def _choose(self, among: Sequence[_T]) -> _T:
        return among[self._chance.randrange(len(among))]

    def _restart(self, process: Process) -> None:
        """So that what happens only at a start happens."""
        process.kill(self._world.log)
        process.start()

    def _reconnect(self, process: Process) -> None:
        """So that a node says hello again."""
        proxy = self._world.proxies[self._world.nodes.index(process)] if process in self._world.nodes else None
        for each in [proxy] if proxy else self._world.proxies:
            each.set(Mode.CUT)
            each.set(Mode.OPEN)

    def _restart_a_job(self, node: Process) -> None:
        """One that registers with that node."""
        index = node.name.rpartition("-")[2]
        self._restart(self._choose([job for job in self._world.jobs if job.name.endswith(f"-{index}")]))

    def _fail_a_step(self, _process: Process) -> None:
        for emulator in self._world.emulators:
            emulator.inject(GpuFault("checkpoint", nth=1, rc=304))


_WAYS: dict[str, Callable[[Striker, Fault], bool]] = {
    "kill": Striker._kill,
    "stop": Striker._stop,
    "clock": Striker._clock,
    "full": Striker._full,
    "link": Striker._link,
    "gpu": Striker._gpu,
    "memory": Striker._memory,
    "lost": Striker._lost,
    "newcomer": Striker._newcomer,
}
_PROVOCATIONS: dict[str, Callable[[Striker, Process], Any]] = {
    "epoch-raised": Striker._restart,
    "recovered": Striker._restart,
    "registered": Striker._restart_a_job,
    "hello-made": Striker._reconnect,
    "hello-taken": Striker._reconnect,
    "undone": Striker._fail_a_step,
}


def _children(pid: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            yield from map(int, (task / "children").read_text().split())


def _running(emulator: Emulator) -> set[int]:
    """Pids with a context that are not locked."""
    return {p["pid"] for p in emulator.snapshot()["processes"] if p["state"] == "RUNNING" and p["contexts"]}


def _was_told(event: Event, *, since: float) -> bool:
    return event.what == "fault" and event.at >= since
