"""Training jobs over both nodes: one has a rank on each, and takes turns with a job on each of its ranks' GPUs."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from pathlib import Path

import pytest
from alone import Training, fingerprints
from rank_manifests import as_rank, key_of_ranks, service
from sharing import Groups
from team import Team
from waits import until

pytestmark = pytest.mark.timeout(900)

JOBS_S = 600.0
NODES = ("node-a", "node-b")
WIDE = Training("gcd", 41)
RANKS = ("wide-0", "wide-1")
NARROW = {"job-a": Training("gcd", 23), "job-b": Training("count_bits", 5)}
GRADIENTS = {"MASTER_ADDR": "wide-0", "MASTER_PORT": "7001"}  # by which the job's own program finds rank 0
OLD_S = 2.0  # of what is shown when it changes: it is written at most once a second
NEAR = 0.1  # a turn is longer for the orchestrator than for the job, by the calls at its ends

Phase = tuple[float, float]


def test_a_job_over_both_nodes_and_one_on_each_train_the_weights_that_they_train_alone(
    groups: Groups, team: Team, tmp_path: Path
) -> None:
    group = groups.create()
    team.apply(service("wide-0"), key_of_ranks(tmp_path))
    apply(team, group)
    team.wait_running(*RANKS, *NARROW)
    for rank, name in zip(RANKS, NARROW, strict=True):
        assert team.wait_devices(rank) == team.wait_devices(name), "they share one GPU"
    rows = watched(groups, team, group)
    team.wait_succeeded(*RANKS, *NARROW)

    took = {name: phases(team.logs(name)) for name in (*RANKS, *NARROW)}
    wide = [(min(a[0], b[0]), max(a[1], b[1])) for a, b in zip(took["wide-0"], took["wide-1"], strict=True)]
    for name in NARROW:
        assert not [(a, b) for a in wide for b in took[name] if a[0] < b[1] and b[0] < a[1]], "both had a GPU"
    assert {job for _, row in rows for job in row["HOLDER"].split(",")} >= {"wide", *NARROW}
    news = [(at, row) for (_, before), (at, row) in pairwise(rows) if row["DUTY"] != before["DUTY"]]
    assert len(news) >= 3, "it was told while they ran"
    at, row = news[-1]
    told = [duty(wide, *(took[name] for name in NARROW), at=at - back / 10) for back in range(int(10 * OLD_S))]
    print(f"duty cycle: kubectl {row['DUTY']}, the jobs {min(told):.0%} to {max(told):.0%}")
    assert min(told) - NEAR <= int(row["DUTY"].removesuffix("%")) / 100 <= max(told) + NEAR

    trained = {name: fingerprints(team.logs(name)) for name in (*RANKS, *NARROW)}
    assert trained["wide-0"]["weights_sha256"] == trained["wide-1"]["weights_sha256"]
    assert [trained[rank] for rank in RANKS] == WIDE.ranks_alone(2)
    assert {name: trained[name] for name in NARROW} == {name: job.alone() for name, job in NARROW.items()}


def apply(team: Team, group: str) -> None:
    """A rank of the wide job and a narrow job on each node."""
    for number, (rank, node) in enumerate(zip(RANKS, NODES, strict=True)):
        template, made = WIDE.manifests(rank, job="wide", group=group, node=node)
        as_rank(made, number, len(RANKS), head="wide-0")
        (container,) = made["spec"]["containers"]
        container["env"].extend({"name": name, "value": value} for name, value in GRADIENTS.items())
        team.apply(template, made)
        team.wait_devices(rank)  # so that those who come next get the same GPU
    for (name, job), node in zip(NARROW.items(), NODES, strict=True):
        team.apply(*job.manifests(name, group=group, node=node))


def watched(groups: Groups, team: Team, group: str) -> list[tuple[float, dict[str, str]]]:
    """What kubectl shows of the group, and when, as long as all jobs run."""
    rows: list[tuple[float, dict[str, str]]] = []

    def running() -> str | None:
        row = groups.row(group)
        if any(team.phase(name) != "Running" for name in (*RANKS, *NARROW)):
            return None
        if row["DEVICES"] == "2":
            rows.append((time.monotonic(), row))
        return "all run"

    until("no job ends", running, limit_s=JOBS_S)
    return rows


def phases(said: str) -> list[Phase]:
    """Begin and end of each of a job's, by the machine's monotonic clock."""
    events = [json.loads(line) for line in said.splitlines()]
    times = {event: [each["t"] for each in events if each["event"] == event] for event in ("holding", "held")}
    return list(zip(times["holding"], times["held"], strict=True))


def duty(wide: list[Phase], *narrow: list[Phase], at: float) -> float:
    """Of the two GPUs from the first phase until then, as the jobs tell of it; the wide one has both at a time."""
    every = [*wide, *wide, *(phase for one in narrow for phase in one)]
    held = sum(max(0.0, min(end, at) - begin) for begin, end in every)
    return held / (2 * (at - min(begin for begin, _ in every)))
