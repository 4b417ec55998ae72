"""The node's process is killed while it prepares and unprepares claims. Pods start all the same, nothing is left."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from containers import kill, main_process
from installation import NAMESPACE, Installation
from kube_cluster import Cluster
from manifests import pod, template
from node_state import STEPS, NodeState
from sharing import Groups
from team import Team
from waits import START_S, true, until

pytestmark = pytest.mark.timeout(900)
NODE = "node-a"
LOOK_S = 0.001  # a step of prepare takes milliseconds
ROUNDS = 3


@pytest.fixture
def fresh(cluster: Cluster, installed: Installation) -> Installation:
    """A node's pod whose container has not been started again often: the kubelet would wait longer each time."""
    old = installed.node_pods()[NODE]["metadata"]
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", old["name"], "--wait=false")
    until("there is no other pod", true(lambda: _uid(installed) not in ("", old["uid"])), limit_s=START_S)
    installed.wait_ready()
    return installed


@pytest.fixture
def state(cluster: Cluster) -> NodeState:
    return NodeState(cluster.nodes[NODE])


@pytest.mark.parametrize("step", STEPS)
def test_a_pod_starts_and_leaves_nothing_when_prepare_was_killed_at(
    cluster: Cluster, fresh: Installation, groups: Groups, team: Team, state: NodeState, step: str
) -> None:
    group = groups.create(node=NODE)
    team.apply(template("job", job="job", group=group))
    before, plugin = state.held(), main_process(cluster, fresh.node_pods()[NODE])
    team.apply(pod("job", claim_template="job", node=NODE))
    uid = _wait_step(state, step, before)
    os.kill(plugin, signal.SIGKILL)
    print(f"killed at {step}: it had written {state.left(uid)}, completed: {uid in state.held('completed')}")
    team.wait_running("job", limit_s=2 * START_S)
    assert state.held("completed") == before | {uid} == before | {team.claim("job")["metadata"]["uid"]}
    assert uid in state.specs() & state.sockets()
    team.delete("pod", "job")
    until("the claim has left something", lambda: state.left(uid))


def test_pods_start_and_leave_nothing_however_often_the_node_s_process_is_killed(
    cluster: Cluster, fresh: Installation, groups: Groups, team: Team, state: NodeState
) -> None:
    group, chance = groups.create(node=NODE, seats=4), random.Random(20)
    for number in range(ROUNDS):
        names = [f"job-{number}-{index}" for index in range(4)]
        team.apply(*(template(name, job=name, group=group) for name in names))
        team.apply(*(pod(name, claim_template=name, node=NODE) for name in names))
        _kill_by_chance(cluster, fresh, chance)
        team.wait_running(*names, limit_s=2 * START_S)
        uids = {team.claim(name)["metadata"]["uid"] for name in names}
        assert state.held("completed") >= uids
        team.kubectl("delete", "pods", "--wait=false", *names)
        _kill_by_chance(cluster, fresh, chance)
        for name in names:
            team.wait_gone(name, limit_s=2 * START_S)
        until("claims have left something", lambda: state.left(*uids))  # noqa: B023  called before the next


def _kill_by_chance(cluster: Cluster, installed: Installation, chance: random.Random) -> None:
    """Somewhen in the next 3 seconds; then the pod is another one, which starts at once."""
    time.sleep(chance.uniform(0, 3))
    old = installed.node_pods()[NODE]
    kill(cluster, old)
    name = old["metadata"]["name"]
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", name, "--grace-period=0", "--force", "--wait=false")
    until("there is no other pod", true(lambda: _uid(installed) not in ("", old["metadata"]["uid"])), limit_s=START_S)
    installed.wait_ready()


def _wait_step(state: NodeState, step: str, before: set[str]) -> str:
    """The UID of the claim that was not there before, at the moment at which its prepare has got to the step."""
    deadline = time.monotonic() + START_S
    while not (found := state.reached(step) - before):
        assert time.monotonic() < deadline, f"prepare has not got to {step}"
        time.sleep(LOOK_S)
    return found.pop()


def _uid(installed: Installation) -> str:
    found = installed.node_pods().get(NODE)
    return str(found["metadata"]["uid"]) if found else ""
