"""Two jobs share a GPU while what serves them is restarted or killed. They notice no more than a pause."""

from __future__ import annotations

import time

import pytest
from containers import kill
from gpu_emulator.faults import Fault
from installation import DRIVER, NAMESPACE, Installation
from kube_cluster import Cluster
from reading import SLICES, Object, objects
from sharing import Groups
from team import Team
from turns import Turns, sharing
from waits import START_S, true, until

pytestmark = pytest.mark.timeout(600)
NODE = "node-a"
API_SERVER_AWAY_S = 30.0
BACK_S = 30.0  # a second or two, on a machine that has nothing else to do


@pytest.fixture
def turns(groups: Groups, team: Team) -> Turns:
    """Of two jobs that share a GPU of node-a."""
    return sharing(team, groups.create(node=NODE), "a", "b", node=NODE)


def node_pods(installed: Installation) -> list[Object]:
    """Of the node: one; none for moments while it is replaced."""
    return [pod for node, pod in installed.node_pods().items() if node == NODE]


def restarts(pods: list[Object]) -> int:
    return sum(each["restartCount"] for pod in pods for each in pod["status"].get("containerStatuses") or ())


def test_jobs_go_on_when_the_node_s_pod_is_deleted(cluster: Cluster, installed: Installation, turns: Turns) -> None:
    old = node_pods(installed)[0]["metadata"]
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", old["name"], "--wait=false")
    until(
        "there is no other pod",
        true(lambda: any(pod["metadata"]["uid"] != old["uid"] for pod in node_pods(installed))),
        limit_s=START_S,
    )
    turns.wait_more()
    installed.wait_ready()
    turns.wait_more()


def test_jobs_go_on_when_the_node_s_process_is_killed(cluster: Cluster, installed: Installation, turns: Turns) -> None:
    before = node_pods(installed)
    kill(cluster, before[0])
    until("it is not started again", true(lambda: restarts(node_pods(installed)) > restarts(before)), limit_s=START_S)
    installed.wait_ready()
    turns.wait_more()


def test_jobs_go_on_when_the_kubelet_is_restarted(cluster: Cluster, installed: Installation, turns: Turns) -> None:
    cluster.nodes[NODE].restart_kubelet()
    turns.wait_more()
    cluster.wait_for_nodes()
    installed.wait_ready()
    turns.wait_more()


def test_jobs_go_on_when_containerd_is_restarted(cluster: Cluster, installed: Installation, turns: Turns) -> None:
    cluster.nodes[NODE].restart_containerd()
    turns.wait_more()
    cluster.wait_for_nodes()
    installed.wait_ready()
    turns.wait_more()


def test_jobs_go_on_when_the_leading_orchestrator_is_deleted(
    cluster: Cluster, installed: Installation, turns: Turns
) -> None:
    led = installed.leader()
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", led, "--wait=false")
    since = time.monotonic()
    first = turns.wait_more()
    print(f"leader deleted: next grant after {min(turn.begin for turn in first) - since:.1f} s")
    until("no other leads", true(lambda: installed.leader() not in ("", led)))
    installed.wait_ready()
    turns.wait_more()


def test_jobs_go_on_when_the_leading_orchestrator_is_killed_in_a_hand_off(
    cluster: Cluster, installed: Installation, turns: Turns
) -> None:
    led = installed.leader()
    control = cluster.nodes[NODE].gpus.control
    control.inject(Fault("checkpoint", delay_ms=5_000))  # time enough to find it in the middle
    try:
        until("nobody is locked", true(lambda: "LOCKED" in {each["state"] for each in processes(cluster)}))
        kill(cluster, installed.orchestrator_pods()[led])
        since = time.monotonic()
    finally:
        control.clear_faults()
    first = turns.wait_more()
    print(f"leader killed in a hand-off: next grant after {min(turn.begin for turn in first) - since:.1f} s")
    installed.wait_ready()
    turns.wait_more()


def test_jobs_go_on_after_the_api_server_was_away(cluster: Cluster, installed: Installation, turns: Turns) -> None:
    cluster.stop("kube-apiserver")
    try:
        time.sleep(API_SERVER_AWAY_S)
    finally:
        cluster.start("kube-apiserver")
    since = time.monotonic()
    first = turns.wait_more()
    print(f"API server back: next grant after {min(turn.begin for turn in first) - since:.1f} s")
    installed.wait_ready()
    turns.wait_more()


def test_slices_deleted_by_hand_are_back_within_seconds(cluster: Cluster, turns: Turns) -> None:
    before = published(cluster)
    cluster.kubectl("delete", "resourceslices", f"--field-selector=spec.driver={DRIVER}")
    since = time.monotonic()
    until("the slices are not back", lambda: unlike(before, published(cluster)), limit_s=BACK_S)
    print(f"slices deleted by hand: back after {time.monotonic() - since:.1f} s")
    turns.wait_more()


def processes(cluster: Cluster) -> list[Object]:
    """That use GPUs of the node, as these know them."""
    found: list[Object] = cluster.nodes[NODE].gpus.control.snapshot()["processes"]
    return found


def published(cluster: Cluster) -> dict[str, list[str]]:
    """UIDs of the slices, and the names of their devices by pool."""
    slices = objects(cluster, SLICES, fields=f"spec.driver={DRIVER}")
    found: dict[str, list[str]] = {"": [each["metadata"]["uid"] for each in slices]}
    for each in slices:
        names = [device["name"] for device in each["spec"].get("devices") or ()]
        found.setdefault(each["spec"]["pool"]["name"], []).extend(names)
    return {pool: sorted(names) for pool, names in found.items()}


def unlike(before: dict[str, list[str]], now: dict[str, list[str]]) -> str | None:
    """None when the devices are the same and no slice is."""
    same = {k: v for k, v in before.items() if k} == {k: v for k, v in now.items() if k}
    return None if same and not set(before[""]) & set(now[""]) else f"{now}"
