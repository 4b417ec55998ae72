"""Who is struck: pods of ours and processes of jobs, by what they are at the moment."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from kube_cluster.errors import ClusterError
from reading import Object

from timeslice_chaos.cluster.follow import JobProcess
from timeslice_chaos.cluster.world import ClusterWorld
from timeslice_chaos.process import eventually

_T = TypeVar("_T")
_FOUND_S = 10.0


class Targets:
    """Finds them by the words of a `ClusterFault`. ClusterError when there is nobody now.

    Attributes:
        node: name of the one that faults of nodes strike.
        mover: pid of the job whose call of the GPU is under way, when one is.
    """

    def __init__(self, world: ClusterWorld, chance: random.Random) -> None:
        self._world, self._chance = world, chance
        self.node = self._choose(sorted(world.cluster.nodes))
        self.mover = 0

    def pid(self, target: str) -> int:
        """Of the container's first process, or of the job's."""
        if target in ("leader", "node"):
            return self._world.main_pid(self.pod(target))
        return self._job(target).pid

    def pod(self, target: str) -> Object:
        """As the API server has it."""
        if target == "leader":
            return self._world.leader()
        if target == "node":
            return self._world.node_pod(self.node)
        name = self._job(target).pod
        if not (pod := self._world.team.pod(name)):
            raise ClusterError(f"pod {name} has gone")
        return pod

    def _job(self, target: str) -> JobProcess:
        before = {process.pid for process in self._in("holder")}
        find: dict[str, Callable[[], Sequence[JobProcess]]] = {
            "mover": lambda: [process for process in self._world.jobs.living() if process.pid == self.mover],
            "parked": self._parked,
            "granted": lambda: [each for each in self._in("holder") if each.pid not in before],
        }
        found: list[JobProcess] = []

        def look() -> bool:
            found[:] = find.get(target, partial(self._in, target))()
            return bool(found)

        if not eventually(look, _FOUND_S):
            raise ClusterError(f"nobody is {target}")
        chosen = self._choose(found)
        if target == "granted":  # what follows takes longer than a turn, and has to come before its end
            self._world.stop(chosen.pid, target)
        return chosen

    def _in(self, what: str) -> list[JobProcess]:
        return [process for process in self._world.jobs.living() if process.is_ == what]

    def _parked(self) -> list[JobProcess]:
        snapshots = [node.gpus.control.snapshot() for node in self._world.cluster.nodes.values()]
        pids = {each["pid"] for found in snapshots for each in found["processes"] if each["state"] == "CHECKPOINTED"}
        return [process for process in self._world.jobs.living() if process.pid in pids]

    def _choose(self, among: Sequence[_T]) -> _T:
        return among[self._chance.randrange(len(among))]
