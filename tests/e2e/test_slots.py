"""A cluster whose feature gates that lanes need are off: slots instead, and the node as the last line.

There the scheduler takes the first slots of all GPUs before any second one, and what a claim asks of host memory is
dropped: so jobs that are to meet ask for all GPUs of a node, and their memory limits hold whole GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from installation import Installation
from kube_cluster import Cluster
from kube_cluster.images import load_images
from kube_cluster.settings import Settings
from manifests import deployment, short_job, sleeper
from reading import SLICES, Object, condition, objects
from sharing import Groups
from team import Team
from waits import START_S, true, until

pytestmark = pytest.mark.timeout(600)

GATES = "DRAConsumableCapacity=false,DRAPartitionableDevices=false"
DRIVER = "gpu.timeslice.dev"
GPUS = 4  # of a node
NODE = "node-a"  # where pods are put: there a slot is every group's, so the scheduler does not know where a group is
ALL_MEMORY = "9Gi"  # a limit that holds the memory of so many GPUs


@pytest.fixture(scope="module")
def cluster(cluster: Cluster) -> Iterator[Cluster]:
    """A second cluster beside the tests' own, for as long as these tests run."""
    found = Cluster(f"{cluster.name}-slots")
    try:
        found.up(Settings(gates=GATES))
        load_images(found.nodes.values())
        yield found
    finally:
        found.down()


@pytest.fixture(scope="module")  # the groups and teams of these tests come from it, too
def installed(cluster: Cluster) -> Installation:
    made = Installation(cluster)
    made.ensure()
    return made


def test_nodes_publish_slots_and_the_group_says_that_lanes_are_not_to_be_had(cluster: Cluster, groups: Groups) -> None:
    group = groups.create()
    devices = [
        device["name"]
        for each in objects(cluster, SLICES, fields=f"spec.driver={DRIVER},spec.nodeName=node-a")
        for device in each["spec"].get("devices", ())
    ]
    assert sorted(devices) == sorted(f"gpu-{gpu}-slot-{slot}" for gpu in range(GPUS) for slot in range(2))
    found = condition(groups.get(group), "LanesUnavailable")
    assert (found["status"], found["reason"]) == ("True", "Slots")
    assert found["message"].startswith("node-a and node-b publish slots: ")
    assert condition(groups.get(group), "Ready")["status"] == "True"


def test_the_nodes_log_says_which_feature_gates_are_off(installed: Installation) -> None:
    node = installed.node_pods()["node-a"]["metadata"]["name"]
    gates = "turn on the feature gates DRAConsumableCapacity and DRAPartitionableDevices"
    assert any("publishing slots" in line and gates in line for line in installed.logs(node).splitlines())


def test_two_jobs_of_a_group_share_gpus_and_take_turns(groups: Groups, team: Team) -> None:
    group = groups.create(node=NODE)
    for name in ("a", "b"):
        team.apply(*short_job(name, group=group, node=NODE, count=GPUS, memory=ALL_MEMORY))
        team.wait_devices(name)
    assert team.devices("a") == [f"node-a/gpu-{gpu}-slot-0" for gpu in range(GPUS)]
    assert team.devices("b") == [f"node-a/gpu-{gpu}-slot-1" for gpu in range(GPUS)]
    team.wait_succeeded("a", "b")


def test_the_same_job_and_another_group_are_refused_on_a_gpu_that_the_scheduler_would_have_given(
    groups: Groups, team: Team
) -> None:
    group, other = groups.create(node=NODE), groups.create(node=NODE)
    team.apply(*sleeper("a", node=NODE, group=group, count=GPUS, memory=ALL_MEMORY))
    team.wait_running("a")

    team.apply(*sleeper("again", node=NODE, group=group, job="a", memory=ALL_MEMORY))
    said = team.wait_event("again", "SameJobTwice: claim ")  # the kubelet says the same in an event of its own
    assert "job a has gpu-0" in said
    told = team.wait_event("again", "it is a bare pod, so it is not moved")
    assert told.startswith("ClaimRefused: ")

    team.apply(*sleeper("x", node=NODE, group=other, memory=ALL_MEMORY))
    said = team.wait_event("x", "GroupConflict: claim ")
    assert f"is in group {group} through claim {team.namespace}/" in said
    assert f"so group {other} cannot have it" in said
    assert (team.phase("again"), team.phase("x")) == ("Pending", "Pending")

    team.delete("pod", "again")
    team.apply(*sleeper("b", node=NODE, group=group, memory=ALL_MEMORY))
    team.wait_running("b")
    assert team.devices("b") == ["node-a/gpu-0-slot-1"]


def test_a_pod_that_a_controller_made_is_evicted_after_a_grace_and_made_anew(groups: Groups, team: Team) -> None:
    group, other = groups.create(node=NODE), groups.create(node=NODE)
    team.apply(*sleeper("a", node=NODE, group=group, count=GPUS, memory=ALL_MEMORY))
    team.wait_running("a")
    wanted, made = sleeper("x", node=NODE, group=other, memory=ALL_MEMORY)
    team.apply(wanted, deployment("x", made))
    until("the deployment has no pod", true(lambda: team.pods("app=x")))
    (first,) = team.pods("app=x")
    name = first["metadata"]["name"]
    team.wait_event(name, f"is in group {group}")
    team.wait_event(name, "evicted, so that", limit_s=START_S)
    until("no pod came in its place", true(lambda: successors(team, first)), limit_s=START_S)
    team.delete("pod", "a")
    until("it does not run either", true(lambda: "Running" in phases(successors(team, first))), limit_s=2 * START_S)


def successors(team: Team, first: Object) -> list[Object]:
    """Pods of the deployment that came after the first."""
    return [pod for pod in team.pods("app=x") if pod["metadata"]["uid"] != first["metadata"]["uid"]]


def phases(pods: list[Object]) -> set[str]:
    return {pod["status"]["phase"] for pod in pods}
