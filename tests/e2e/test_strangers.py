"""A pod that tries what is not its own, with the tokens and sockets that a pod really has."""

from __future__ import annotations

import pytest
from manifests import pod, running, sleeper, template
from sharing import Groups
from team import Team

pytestmark = pytest.mark.timeout(300)

OUTCOMES = {
    "its own turn": "let in",
    "a neighbour's turn": "Forbidden",
    "a neighbour's place": "Forbidden",
    "a release": "Forbidden",
    "no token": "Unauthenticated",
    "a forged token": "Unauthenticated",
    "the token for the API server": "Unauthenticated",
    "a neighbour at the node": "InvalidRequest",
    "a neighbour's snapshot": "OrchestratorInCharge",
}


def test_a_pod_takes_its_own_turn_and_gets_nothing_that_is_its_neighbours(groups: Groups, team: Team) -> None:
    group = groups.create(node="node-a")
    team.apply(*sleeper("neighbour", job="job-a", group=group, node="node-a"))
    team.wait_running("neighbour")
    made = pod("stranger", claim_template="stranger", node="node-a", memory="256Mi")
    command = ("python3", "/programs/program_stranger.py", "job-a")
    team.apply(template("stranger", job="job-b", group=group), running(made, *command))
    team.wait_succeeded("stranger")
    said = dict(line.split(": ", 1) for line in team.logs("stranger").splitlines() if ": " in line)
    assert {what: said.get(what) for what in OUTCOMES} == OUTCOMES
