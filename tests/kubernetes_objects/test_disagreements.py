from __future__ import annotations

from cluster_objects import Object, claim, lane, node_slice, occupancy, pod, small
from timeslice_orchestrator.kubernetes.disagreements import disagreements

SLICES = [node_slice("node-a", lane(0, "rl-a", jobs=["a"]))]


def texts(raw: Object, *pods: Object) -> list[str]:
    found = disagreements(small(raw), occupancy(SLICES, [raw], pods))
    return [one.text for one in found]


def test_labels_that_agree_are_not_worth_a_word() -> None:
    raw = claim("c", "rl-a", job="a", label_group="rl-a", on=[("node-a", 0)], pod="p")
    assert texts(raw, pod("p", "c", job="a", label_group="rl-a")) == []
    assert texts(claim("c", "rl-a")) == []


def test_a_label_of_another_group_than_the_gpus_are_in_is_told() -> None:
    raw = claim("c", "rl-a", job="a", label_group="rl-b", on=[("node-a", 0)])
    assert texts(raw) == ["claim c has label timeslice.dev/group=rl-b, but its GPUs are in group rl-a, which counts"]


def test_before_the_allocation_the_class_tells_the_group() -> None:
    found = texts(claim("c", "rl-a", job="a"), pod("p", "c", label_group="rl-b"))
    assert found == ["pod p has label timeslice.dev/group=rl-b, but it asks for group rl-a, which counts"]


def test_a_pods_job_that_is_not_the_claims_is_told() -> None:
    found = texts(claim("c", "rl-a", job="a"), pod("p", "c", job="b"))
    assert found == ["pod p has label timeslice.dev/job=b, but the claim's label says a, which counts"]


def test_the_configuration_wins_over_both_labels() -> None:
    config = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig", "job": "z"}
    found = texts(claim("c", "rl-a", job="a", config=config), pod("p", "c", job="b"))
    assert found == [
        "claim c has label timeslice.dev/job=a, but the claim's configuration says z, which counts",
        "pod p has label timeslice.dev/job=b, but the claim's configuration says z, which counts",
    ]


def test_a_label_that_was_changed_after_the_allocation_is_told() -> None:
    raw = claim("c", "rl-a", job="b", consumed_job="a", on=[("node-a", 0)])
    assert texts(raw) == ["claim c is of job b, but was allocated as job_a, so another job was kept apart"]
