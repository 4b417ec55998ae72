"""What people write wrongly, or ask for when there is none: where it stops, and in which words they are told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import manifests
import pytest
from installation import Installation
from kube_cluster import Cluster
from kube_cluster.errors import ClusterError
from manifests import MIB, running, short_job, sleeper, template
from reading import DEVICE_CLASSES, Object, condition, one
from sharing import Groups
from team import Team
from waits import until

pytestmark = pytest.mark.timeout(300)

KIND = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig"}
BINDING = "timeslice-claims-configured"
IN_FORCE_S = 30.0  # the API server looks at policies anew every now and then
LARGE = str(160 * MIB)  # bytes: more than the 128 MiB that the pods of tests may take
TOO_SMALL = "container main of pod {pod} may take 32.0 MiB of memory, but its snapshot is up to 64.0 MiB"


def test_a_namespace_that_is_not_admitted_is_told_who_is(groups: Groups, team: Team) -> None:
    group = groups.create(node="node-a", namespaces=["trainers", "raters"])
    with pytest.raises(
        ClusterError, match=f"group {group} does not admit namespace {team.namespace}; it admits trainers"
    ):
        team.apply(*sleeper("a", group=group))
    assert not team.claims()


def test_a_pod_whose_template_is_older_than_the_groups_list_says_why_it_has_no_claim(
    groups: Groups, team: Team
) -> None:
    name = f"rl-{uuid4().hex[:6]}"
    team.apply(template("a", job="a", group=name))
    groups.apply(manifests.group(name, node="node-a", namespaces=["trainers"]))
    try:
        team.apply(manifests.pod("a", claim_template="a"))
        said = team.wait_event("a", f"group {name} does not admit namespace {team.namespace}; it admits trainers")
        assert said.startswith("FailedResourceClaimCreation: ")
        assert not team.claims()
    finally:
        groups.delete(name)
    groups.wait_gone(name)


def test_a_configuration_with_an_unknown_field_is_refused_where_it_is_written(groups: Groups, team: Team) -> None:
    group = groups.create(node="node-a")
    with pytest.raises(ClusterError, match="TimesliceConfig: jobb is not a field of it"):
        team.apply(*sleeper("a", group=group, config={**KIND, "jobb": "a"}))


def test_a_configuration_that_no_policy_has_seen_is_refused_on_the_node_with_the_name_of_the_field(
    cluster: Cluster, groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    with policy_off(cluster, BINDING):
        until("the policy is still in force", lambda: accepted(team, group), limit_s=IN_FORCE_S)
    said = team.wait_event("a", "ConfigInvalid: claim ")
    assert "jobb" in said
    assert refusal(team, "a") == ("ConfigInvalid", said.partition(": ")[2].partition(": ")[2])
    assert team.phase("a") == "Pending"


@contextmanager
def policy_off(cluster: Cluster, binding: str) -> Iterator[None]:
    """As in a cluster where claims were written before the chart was installed."""
    kind = "validatingadmissionpolicybinding"
    kept = json.loads(cluster.kubectl("get", kind, binding, "--output=json"))
    cluster.kubectl("delete", kind, binding)
    try:
        yield
    finally:
        for key in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
            kept["metadata"].pop(key, None)
        cluster.kubectl("apply", "-f", "-", given=json.dumps(kept))


def accepted(team: Team, group: str) -> str | None:
    """Why the wrong configuration is refused; None when it is there, with its pod and claim."""
    team.apply(*sleeper("a", group=group, config={**KIND, "jobb": "a"}))
    return None if team.claim("a") else "the pod has no claim yet"


def refusal(team: Team, pod: str) -> tuple[str, str]:
    """Reason and message on the pod's claim, once they are there."""
    found: list[Object] = []

    def missing() -> str | None:
        devices = (team.claim(pod).get("status") or {}).get("devices") or ()
        found[:] = [ready for each in devices if (ready := condition({"status": each}, "Ready"))]
        return None if found else f"{devices}"

    until(f"the claim of {pod} says nothing", missing)
    return found[-1]["reason"], found[-1]["message"]


def test_a_memory_limit_that_is_too_small_for_the_snapshot_is_told_on_claim_and_pod_and_in_the_log(
    groups: Groups, team: Team, installed: Installation
) -> None:
    group = groups.create(node="node-a")
    team.apply(*sleeper("a", group=group, memory="32Mi"))
    text = TOO_SMALL.format(pod="a")
    said = team.wait_event("a", "PodMemory: claim ")  # the kubelet says the same in an event of its own
    assert text in said
    assert "raise its memory limit to 64.0 MiB and what the program itself needs" in said
    reason, message = refusal(team, "a")
    assert reason == "PodMemory"
    assert message.startswith(text)
    node = installed.node_pods()["node-a"]["metadata"]["name"]
    (line,) = [line for line in installed.logs(node).splitlines() if text in line and "is refused" in line]
    entry = json.loads(line)
    assert team.namespace in line
    assert entry["level"].upper() == "WARNING"
    about = {"claim_uid": team.claim("a")["metadata"]["uid"], "job_id": "a", "group_id": group}
    assert entry.items() >= about.items()


def test_a_job_that_has_more_on_its_gpu_than_its_pod_can_hold_is_told_so_and_the_group_shows_why_others_wait(
    groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    large = running(manifests.pod("large", claim_template="large"), "python3", "/programs/program_large.py", LARGE)
    team.apply(template("large", job="large", group=group), large)
    team.wait_said("large", "filled")
    team.apply(*short_job("next", group=group))
    told = team.wait_event("large", f"group {group} cannot be handed over: large on node-a: ")
    assert told.startswith("HostMemory: ")
    assert "raise the memory limit" in told
    found: Object = {}

    def unseen() -> str | None:
        found.clear()
        found.update(condition(groups.get(group), "HandOffBlocked"))
        return None if found else "no such condition"

    until("the group does not say it", unseen)
    assert (found["status"], found["reason"]) == ("True", "HostMemory")
    assert "large on node-a: " in found["message"]
    team.delete("pod", "large")
    team.wait_succeeded("next")
    until("the group still says it", lambda: None if unseen() else str(found))


def test_a_group_that_is_deleted_while_it_is_used_goes_with_its_last_claim(
    cluster: Cluster, groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    team.apply(*sleeper("a", group=group))
    team.wait_running("a")
    groups.delete(group)
    until("it does not drain", lambda: draining(groups, group, team.claim("a")))
    assert not one(cluster, DEVICE_CLASSES, f"{group}.timeslice.dev")
    assert condition(groups.get(group), "Ready")["reason"] == "BeingDeleted"

    team.apply(*sleeper("late", group=group))
    team.wait_event("late", f"group {group}")
    assert team.phase("a") == "Running"
    assert not team.devices("late")

    team.delete("pod", "a")
    groups.wait_gone(group)
    assert group not in cluster.kubectl("get", "resourceslices", "--output=json")


def draining(groups: Groups, group: str, claim: Object) -> str | None:
    """What is missing until the group says for whom it waits."""
    found = condition(groups.get(group), "Draining")
    wanted = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
    return None if found.get("status") == "True" and wanted in found["message"] else str(found)


def test_a_pod_that_has_to_wait_is_told_why_in_words(groups: Groups, team: Team) -> None:
    ours = groups.create("ours", node="node-a", hostMemoryPerGPU="256Mi")
    theirs = groups.create("theirs", node="node-a")
    team.apply(*sleeper("a", group=ours, count=4, host_memory="128Mi", memory="600Mi"))
    team.wait_devices("a")
    all_gpus = "gpu-0, gpu-1, gpu-2 and gpu-3 of node-a"
    waiting = {
        "other-group": (sleeper("other-group", group=theirs), f"no free GPU; {all_gpus} are in group {ours}"),
        "same-job": (sleeper("same-job", group=ours, job="a"), f"job a already has {all_gpus}"),
        "host-memory": (
            sleeper("host-memory", group=ours, host_memory="192Mi"),
            f"host memory: {all_gpus} have 128Mi of 256Mi left, 192Mi asked",
        ),
        "too-many": (
            sleeper("too-many", group=theirs, count=5),
            "5 GPUs of one node are asked, and no node has more than 4",
        ),
        "no-group": (sleeper("no-group", group="nobodys"), "there is no TimesliceGroup nobodys"),
    }
    team.apply(*(made for pair, _ in waiting.values() for made in pair))
    for name, (_, text) in waiting.items():
        assert team.wait_event(name, text).startswith("WaitingForGPU: ")

    team.apply(*sleeper("b", group=ours, count=4, memory="400Mi"))
    team.wait_devices("b")
    team.apply(*sleeper("seats", group=ours))
    team.wait_event("seats", f"seats: {all_gpus} have 2 of 2 jobs")
