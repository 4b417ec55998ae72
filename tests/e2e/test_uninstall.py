"""Uninstall refuses while it would hurt somebody, leaves nothing behind, and what was prepared survives a new start."""

from __future__ import annotations

import pytest
from installation import NAMESPACE, Installation
from kube_cluster import Cluster
from kube_cluster.errors import ClusterError
from manifests import short_job, sleeper
from reading import DEVICE_CLASSES, PODS, SLICES, condition, objects
from sharing import Groups
from team import Team
from waits import START_S, until

pytestmark = pytest.mark.timeout(600)

DRIVER = "gpu.timeslice.dev"
PHASES, PHASE_S = 40, 0.5  # of a job that is at it while the platform goes and comes


def left_behind(cluster: Cluster) -> list[str]:
    """What of the product is still there, but for groups that people made."""
    found = [each["metadata"]["name"] for each in objects(cluster, SLICES, fields=f"spec.driver={DRIVER}")]
    found += [each["metadata"]["name"] for each in objects(cluster, PODS, namespace=NAMESPACE)]
    kinds = (
        "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,"
        "mutatingadmissionpolicies,mutatingadmissionpolicybindings"
    )
    return found + [
        name
        for name in cluster.kubectl("get", kinds, "--output=name").split()
        if name.partition("/")[2].startswith("timeslice")
    ]


@pytest.mark.smoke
def test_uninstall_refuses_while_a_claim_is_allocated_and_then_leaves_nothing_behind(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    team.apply(*sleeper("a", group=group))
    team.wait_running("a")
    before = {**installed.node_pods(), **installed.orchestrator_pods()}

    with pytest.raises(ClusterError, match=f"claims still have GPUs of {DRIVER}: {team.namespace}/a-gpu-"):
        installed.uninstall()
    after = {**installed.node_pods(), **installed.orchestrator_pods()}
    assert {name: pod["metadata"]["uid"] for name, pod in after.items()} == {
        name: pod["metadata"]["uid"] for name, pod in before.items()
    }
    team.wait_running("a")

    team.delete("pod", "a")
    until("the claim is still there", lambda: f"{team.claims()}" if team.claims() else None)
    installed.uninstall()
    assert left_behind(cluster) == []
    assert groups.get(group)["metadata"].get("finalizers", []) == []
    groups.delete(group)
    groups.wait_gone(group, limit_s=10)
    assert not [each for each in objects(cluster, DEVICE_CLASSES) if each["metadata"]["name"].startswith(group)]


def test_after_a_new_installation_groups_that_stayed_are_offered_and_pods_that_waited_start(
    installed: Installation, groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    installed.uninstall()
    team.apply(*sleeper("waiting", group=group))
    installed.install()
    groups.wait_ready(group)
    team.wait_running("waiting")
    assert team.devices("waiting")
    assert condition(groups.get(group), "Ready")["reason"] == "Published"


def test_prepared_jobs_go_on_when_the_platform_is_taken_away_without_its_hook_and_installed_again(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    for name in ("a", "b"):
        team.apply(*short_job(name, group=group, phases=PHASES, phase_s=PHASE_S))
    for name in ("a", "b"):
        team.wait_said(name, "phase 2")
    cluster.helm("uninstall", "timeslice", f"--namespace={NAMESPACE}", "--no-hooks", "--wait", limit_s=180)
    assert team.phase("a") == team.phase("b") == "Running"
    installed.install()
    team.wait_succeeded("a", "b", limit_s=2 * START_S)
    assert team.devices("a") == team.devices("b")
    for name in ("a", "b"):
        team.delete("pod", name)
    until("claims are not unprepared", lambda: f"{team.claims()}" if team.claims() else None)
