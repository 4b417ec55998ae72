"""Jobs go away in the middle of things. Those that shared a GPU with them go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kube_cluster import Cluster
from manifests import template
from node_state import NodeState
from reading import Object
from sharing import Groups
from team import Team
from turns import GPUS, Turns, sharing, turn_taker
from waits import START_S, true, until

pytestmark = pytest.mark.timeout(600)
NODE = "node-a"


def delete(team: Team, pod: str) -> None:
    """By hand."""
    team.delete("pod", pod, "--wait=false")


@pytest.mark.parametrize("leave", [Team.evict, delete])
def test_the_other_goes_on_when_a_job_leaves_while_it_holds(
    groups: Groups, team: Team, leave: Callable[[Team, str], None]
) -> None:
    turns = sharing(team, groups.create(node=NODE), "a", "b", node=NODE, held_s=5.0)
    until("a does not hold", true(lambda: turns.holds("a")))
    leave(team, "a")
    turns.without("a").wait_more()
    team.wait_gone("a")


@pytest.mark.parametrize("leave", [Team.evict, delete])
def test_the_other_goes_on_when_a_job_leaves_while_it_waits(
    groups: Groups, team: Team, leave: Callable[[Team, str], None]
) -> None:
    group = groups.create(node=NODE)
    turns = sharing(team, group, "a", "b", node=NODE, held_s=5.0)
    until("a does not wait", true(lambda: turns.holds("b") and groups.status(group).get("waiting")))
    leave(team, "a")
    turns.without("a").wait_more()
    team.wait_gone("a")


@pytest.mark.parametrize("leave", [Team.evict, delete])
def test_the_other_goes_on_when_a_job_leaves_while_it_is_parked(
    cluster: Cluster, groups: Groups, team: Team, leave: Callable[[Team, str], None]
) -> None:
    group = groups.create(node=NODE)
    team.apply(*turn_taker("a", group=group, node=NODE, rest_s=600))
    team.wait_said("a", "turn 1")
    team.apply(*turn_taker("b", group=group, node=NODE))
    turns = Turns(team, "b")
    turns.wait_more()
    assert "CHECKPOINTED" in {each["state"] for each in processes(cluster)}
    leave(team, "a")
    turns.wait_more()
    team.wait_gone("a")
    assert {each["state"] for each in processes(cluster)} <= {"RUNNING", "LOCKED"}
    turns.wait_more()


def test_a_claim_s_name_can_be_used_again_while_its_force_deleted_pod_still_ends(
    cluster: Cluster, groups: Groups, team: Team
) -> None:
    group, state = groups.create(node=NODE), NodeState(cluster.nodes[NODE])
    team.apply(*turn_taker("partner", group=group, node=NODE))
    team.apply(*stubborn("a", group=group))
    turns = Turns(team, "partner", "a")
    turns.wait_more()
    old = team.claim("a")["metadata"]["uid"]
    team.kubectl("delete", "pod", "a", "--grace-period=0", "--force", "--wait=false")
    team.kubectl("delete", "resourceclaim", "a", "--wait=false")
    until("the claim is still there", lambda: str(claim_named(team, "a") or "") or None, limit_s=START_S)
    team.apply(*stubborn("a", group=group))
    turns.wait_more(limit_s=2 * START_S)
    assert team.claim("a")["metadata"]["uid"] != old
    until("the old claim has left something", lambda: state.left(old))
    turns.wait_more()


def stubborn(name: str, *, group: str) -> list[Object]:
    """A claim with that name and a pod that does not end when it is asked to, but seconds later."""
    _, made = turn_taker(name, group=group, node=NODE)
    made["spec"]["terminationGracePeriodSeconds"] = 10
    made["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": name}]
    (container,) = made["spec"]["containers"]
    container["command"] = ["sh", "-c", 'trap "" TERM; exec "$@"', "sh", *container["command"]]
    return [template(name, job=name, group=group, count=GPUS, kind="ResourceClaim"), made]


def processes(cluster: Cluster) -> list[Object]:
    """That use GPUs of the node, as these know them."""
    found: list[Object] = cluster.nodes[NODE].gpus.control.snapshot()["processes"]
    return found


def claim_named(team: Team, name: str) -> Object:
    """Empty when there is none."""
    return next((each for each in team.claims() if each["metadata"]["name"] == name), {})
