"""Jobs that go on taking turns while something is done to the cluster."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

import manifests
from kube_cluster.errors import ClusterError
from reading import Object
from team import Team
from waits import START_S

MIB = 1 << 20
GPUS = 4  # of a worker
_PROGRAM = "/programs/program_turns.py"
_PAUSE_S = 1.0


@dataclass(frozen=True)
class Turn:
    """``begin`` and ``end`` are in seconds of the machine's monotonic clock; the checksum is of what it found."""

    job: str
    number: int
    begin: float
    end: float
    checksum: str


def turn_taker(
    name: str, *, group: str, node: str = "", held_s: float = 0.3, rest_s: float = 0.1, restarts: bool = False
) -> list[Object]:
    """Template and pod of a job that takes turns until it is ended, and fails when a byte of its memory is lost.

    It claims all GPUs of its node, so that two of them are sure to share.
    """
    made = manifests.pod(name, claim_template=name, node=node, memory="256Mi")
    made["spec"]["restartPolicy"] = "Always" if restarts else "Never"
    command = ("python3", _PROGRAM, str(8 * MIB), str(held_s), str(rest_s))
    return [manifests.template(name, job=name, group=group, count=GPUS), manifests.running(made, *command)]


class Turns:
    """Watches the turns of jobs, whose pods have their names."""

    def __init__(self, team: Team, *jobs: str) -> None:
        self._team = team
        self._jobs = jobs

    def taken(self, job: str) -> list[Turn]:
        """All that the job's container has told of."""
        said = [line.split() for line in self._team.logs(job).splitlines() if line.startswith("turn ")]
        return [Turn(job, int(number), float(a), float(b), what) for _, number, a, b, what in said]

    def wait_more(self, count: int = 2, *, limit_s: float = START_S) -> list[Turn]:
        """Each job has begun ``count`` turns since this call; the first of each. What is promised of turns holds."""
        since, deadline = time.monotonic(), time.monotonic() + limit_s
        while missing := self._behind(since, count):
            assert time.monotonic() < deadline, f"no more turns after {limit_s:.0f} s\n{missing}"
            time.sleep(_PAUSE_S)
        self.check()
        return [min((turn for turn in self.taken(job) if turn.begin >= since), key=_begin) for job in self._jobs]

    def check(self) -> None:
        """No turn is missing, no two jobs had the GPU at once, no byte was lost (the jobs see to that themselves)."""
        by_job = [self.taken(job) for job in self._jobs]
        for turns in by_job:
            assert [turn.number for turn in turns] == list(range(1, len(turns) + 1))
        for one, other in pairwise(sorted((turn for turns in by_job for turn in turns), key=_begin)):
            assert one.end <= other.begin, f"both had the GPU: {one} and {other}"

    def pause(self) -> float:
        """The longest time between two turns that followed each other, whoever's they were; in seconds."""
        ordered = sorted((turn for job in self._jobs for turn in self.taken(job)), key=_begin)
        return max((other.begin - one.end for one, other in pairwise(ordered)), default=0.0)

    def holds(self, job: str) -> bool:
        """Whether it has the GPU now."""
        return (self._team.logs(job).splitlines() or [""])[-1].startswith("holds")

    def without(self, *jobs: str) -> Turns:
        """Those of the others."""
        return Turns(self._team, *(job for job in self._jobs if job not in jobs))

    def _behind(self, since: float, count: int) -> str:
        """Who has not begun so many turns since then, and what is known of that job; empty when all have."""
        try:
            behind = [job for job in self._jobs if sum(turn.begin >= since for turn in self.taken(job)) < count]
            phases = {job: self._team.phase(job) for job in behind}
            said = {job: self._team.logs(job)[-1500:] for job in behind}
        except ClusterError as error:  # API server or kubelet are away
            return str(error)
        ended = [job for job in behind if phases[job] in ("Failed", "Succeeded")]
        assert not ended, "\n".join(f"{job} has ended: {said[job]}" for job in ended)
        return "\n".join(f"{job} ({phases[job]}): {said[job]}" for job in behind)


def sharing(team: Team, group: str, *jobs: str, **options: object) -> Turns:
    """Jobs that share the GPUs of a node and have begun to take turns."""
    team.apply(*(made for job in jobs for made in turn_taker(job, group=group, **options)))  # type: ignore[arg-type]
    team.wait_running(*jobs)
    places = {tuple(team.devices(job)) for job in jobs}
    assert len(places) == 1, f"they do not share the same GPUs: {places}"
    turns = Turns(team, *jobs)
    turns.wait_more(1)
    return turns


def _begin(turn: Turn) -> float:
    return turn.begin
