"""Why a claim waits: every row of the table that was run on the real scheduler, and what else can keep one waiting."""

from __future__ import annotations

from typing import Any

import pytest
from cluster_objects import Object, claim, group, lane, node_slice, pod, slot, small, world
from timeslice_orchestrator.kubernetes.pending import Reason, why_pending

JOBS = ("a", "b")


def two_gpus(node: str = "node-a", *, seats: int = 2) -> Object:
    lanes = [lane(gpu, name, jobs=JOBS, seats=seats) for name in ("rl-a", "rl-b") for gpu in (0, 1)]
    return node_slice(node, *lanes)


GROUPS = [group("rl-a", jobs=JOBS), group("rl-b", jobs=JOBS)]
A1 = claim("a1", "rl-a", job="a", on=[("node-a", 0)])
B1 = claim("b1", "rl-a", job="b", on=[("node-a", 0)])
A2 = claim("a2", "rl-a", job="a", on=[("node-a", 1)])
M1 = claim("m1", "rl-a", job="a", count=2, memory="40Gi", on=[("node-a", 0), ("node-a", 1)])
M2 = claim("m2", "rl-a", job="b", count=2, memory="40Gi", on=[("node-a", 0), ("node-a", 1)])
H1 = claim("h1", "rl-a", job="a", memory="100Gi", on=[("node-a", 0)])
H2 = claim("h2", "rl-a", job="b", memory="80Gi", on=[("node-a", 1)])


def why(waiting: Object, claims: list[Object], slices: list[Object] | None = None, **more: Any) -> Reason:
    return why_pending(small(waiting), world(GROUPS, [two_gpus()] if slices is None else slices, claims, **more))


@pytest.mark.parametrize(
    ("waiting", "there"),
    [
        (claim("a1", "rl-a", job="a"), []),
        (claim("b1", "rl-a", job="b"), [A1]),
        (claim("a2", "rl-a", job="a"), [A1, B1]),
        (claim("x1", "rl-b", job="a"), [A1, B1]),
        (claim("m1", "rl-a", job="a", count=2), []),
        (claim("m2", "rl-a", job="b", count=2), [M1]),
        (claim("h2", "rl-a", job="b", memory="80Gi"), [H1]),
        (claim("h3", "rl-a", job="b", memory="60Gi"), [H1]),
    ],
)
def test_a_claim_that_the_scheduler_allocated_in_the_table_has_room(waiting: Object, there: list[Object]) -> None:
    reason = why(waiting, there)
    assert reason.passing
    assert "node-a has room" in reason.text


@pytest.mark.parametrize(
    ("waiting", "there", "text"),
    [
        (
            claim("x1", "rl-b", job="a"),
            [A1, B1, A2],
            "group rl-b: no free GPU; gpu-0 and gpu-1 of node-a are in group rl-a",
        ),
        (
            claim("m3", "rl-a", job="b", count=2),
            [M1, M2],
            "group rl-a: no free GPU; "
            "job b already has gpu-0 and gpu-1 of node-a (a job never shares a GPU with itself)",
        ),
        (
            claim("h2", "rl-a", job="b", memory="80Gi"),
            [H1, claim("h4", "rl-a", job="a", memory="120Gi", on=[("node-a", 1)])],
            "group rl-a: no free GPU; host memory: gpu-0 of node-a has 60Gi of 160Gi left, 80Gi asked; "
            "host memory: gpu-1 of node-a has 40Gi of 160Gi left, 80Gi asked",
        ),
    ],
)
def test_a_claim_that_waited_in_the_table_is_told_why(waiting: Object, there: list[Object], text: str) -> None:
    assert why(waiting, there) == Reason(text)


def test_seats_that_are_taken_are_counted() -> None:
    groups = [group("rl-a", jobs=["a", "b", "c"])]
    lanes = [lane(gpu, "rl-a", jobs=["a", "b", "c"], memory="320Gi") for gpu in (0, 1)]
    there = [M1, M2]
    found = why_pending(small(claim("c1", "rl-a", job="c")), world(groups, [node_slice("node-a", *lanes)], there))
    assert found == Reason("group rl-a: no free GPU; seats: gpu-0 and gpu-1 of node-a have 2 of 2 jobs")


def test_what_a_claim_does_not_ask_of_host_memory_is_the_lanes_default() -> None:
    there = [claim("big", "rl-a", job="a", memory="100Gi", on=[("node-a", gpu)]) for gpu in (0, 1)]
    assert "60Gi of 160Gi left, 80Gi asked" in why(claim("h", "rl-a", job="b"), there).text


def test_some_but_not_enough_free_gpus_on_one_node_are_counted() -> None:
    found = why(claim("m", "rl-b", job="a", count=2), [A1], [two_gpus("node-a"), two_gpus("node-b")])
    assert found.passing  # node-b has both
    found = why(claim("m", "rl-b", job="a", count=2), [A1])
    assert found.text == (
        "group rl-b: 2 GPUs of one node are asked, and no node has more than 1 free; gpu-0 of node-a is in group rl-a"
    )


def test_more_gpus_than_any_node_has_can_never_be_had() -> None:
    found = why(claim("m", "rl-b", job="a", count=3), [])
    assert found == Reason("group rl-b: 3 GPUs of one node are asked, and no node has more than 2")


def test_all_gpus_of_a_node_are_asked() -> None:
    waiting = claim("all", "rl-b", job="a")
    exactly = waiting["spec"]["devices"]["requests"][0]["exactly"]
    del exactly["count"]
    exactly["allocationMode"] = "All"
    text = why(waiting, [A1]).text
    assert text.startswith(
        "group rl-b: all GPUs of a node are asked, and no node has more than 1 free; gpu-0 of node-a"
    )


def test_gpus_of_many_nodes_are_counted_not_listed() -> None:
    nodes = [f"node-{n}" for n in range(9)]
    there = [claim(f"c{n}", "rl-a", job="a", count=2, on=[(node, 0), (node, 1)]) for n, node in enumerate(nodes)]
    found = why(claim("x", "rl-b", job="a"), there, [two_gpus(node) for node in nodes])
    assert found.text == "group rl-b: no free GPU; 18 GPUs of 9 nodes are in group rl-a"


def test_gpus_are_listed_by_number_and_node() -> None:
    lanes = [lane(gpu, name, jobs=JOBS) for name in ("rl-a", "rl-b") for gpu in (10, 2)]
    there = [claim(f"c{gpu}", "rl-a", job="a", on=[("node-b", gpu)]) for gpu in (10, 2)]
    found = why(claim("x", "rl-b", job="a"), [*there, A1, A2], [two_gpus(), node_slice("node-b", *lanes)])
    assert found.text.endswith("; gpu-0 and gpu-1 of node-a, gpu-2 and gpu-10 of node-b are in group rl-a")


def test_a_gpu_that_is_not_healthy_or_is_drained_is_no_place() -> None:
    lanes = [lane(0, "rl-a", jobs=JOBS, taints=["timeslice.dev/unhealthy"])]
    lanes += [lane(1, "rl-a", jobs=JOBS, taints=["timeslice.dev/draining"]), lane(2, "rl-a", jobs=JOBS, taints=["x/y"])]
    text = why(claim("a", "rl-a", job="a"), [], [node_slice("node-a", *lanes)]).text
    assert "gpu-0 of node-a is not healthy" in text
    assert "gpu-1 of node-a is being drained" in text
    assert "gpu-2 of node-a is tainted: x/y" in text


def test_slices_of_an_older_generation_do_not_count() -> None:
    old = node_slice("node-a", lane(5, "rl-b", jobs=JOBS), generation=1)
    new = node_slice("node-a", lane(0, "rl-b", jobs=JOBS), lane(0, "rl-a", jobs=JOBS), generation=2)
    assert why(claim("x", "rl-b", job="a"), [A1], [old, new]).text.endswith("gpu-0 of node-a is in group rl-a")


def test_a_claim_on_a_lane_that_is_not_published_any_more_still_has_its_gpu() -> None:
    left = node_slice("node-a", lane(0, "rl-b", jobs=JOBS))
    assert why(claim("x", "rl-b", job="a"), [A1], [left]).text.endswith("gpu-0 of node-a is in group rl-a")


def test_a_job_whose_capacity_the_node_has_yet_to_publish_is_told_only_if_that_stays() -> None:
    found = why_pending(
        small(claim("n", "rl-a", job="new")),
        world(
            [group("rl-a", status_jobs=["new"]), group("rl-b")],
            [node_slice("node-a", *(lane(gpu, name) for gpu in (0, 1) for name in ("rl-a", "rl-b")))],
            [claim("c", "rl-b", job="a", on=[("node-a", 1)])],
        ),
    )
    obstacles = "gpu-0 of node-a is not offered to job new yet; gpu-1 of node-a is in group rl-b"
    assert found == Reason(f"group rl-a: no free GPU; {obstacles}", passing=True)


@pytest.mark.parametrize(
    ("groups", "waiting", "text"),
    [
        (
            [],
            claim("c", "rl-x", job="a"),
            "there is no TimesliceGroup rl-x, which DeviceClass rl-x.timeslice.dev is of",
        ),
        (
            [group("rl-x", namespaces=["b", "a"])],
            claim("c", "rl-x", job="a"),
            "group rl-x: namespace team is not admitted (admitted: a and b)",
        ),
        (
            [group("rl-x", namespaces=[])],
            claim("c", "rl-x", job="a"),
            "group rl-x: namespace team is not admitted (admitted: none)",
        ),
        (
            [group("rl-x")],
            claim("c", "rl-x"),
            "group rl-x: label timeslice.dev/job is missing; put it into the metadata.labels of the claim template's "
            "spec, or on the pod",
        ),
        (
            [group("rl-x", jobs=["a", "b"])],
            claim("c", "rl-x", job="z"),
            "group rl-x: job z is not in the group's list (admitted: a and b)",
        ),
        (
            [group("rl-x", status_jobs=[f"j{n}" for n in range(16)])],
            claim("c", "rl-x", job="z"),
            "group rl-x: it has 16 jobs already, the most there can be; job z has to wait",
        ),
    ],
)
def test_a_claim_that_is_barred_is_told_so_whatever_is_free(groups: list[Object], waiting: Object, text: str) -> None:
    slices = [node_slice("node-a", lane(0, "rl-x", jobs=JOBS))]
    assert why_pending(small(waiting), world(groups, slices)) == Reason(text)


def test_a_group_that_is_being_deleted_takes_no_claims() -> None:
    leaving = group("rl-x")
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T16:00:00Z"
    found = why_pending(small(claim("c", "rl-x", job="a")), world([leaving]))
    assert found == Reason("group rl-x is being deleted and takes no new claims")


@pytest.mark.parametrize(
    ("selector", "nodes", "text"),
    [
        ({"gpu": "yes"}, (), "no node publishes group rl-x (nodeSelector gpu=yes matches none)"),
        (
            {"gpu": "yes"},
            ("node-b", "node-a"),
            "no node publishes group rl-x (nodeSelector gpu=yes matches node-a and node-b: does the driver's pod run "
            "there, and does it find GPUs?)",
        ),
        (
            {},
            ("node-a",),
            "no node publishes group rl-x (the cluster has node-a: does the driver's pod run there, and does it find "
            "GPUs?)",
        ),
        ({}, (), "no node publishes group rl-x (the cluster has no nodes)"),
    ],
)
def test_a_group_that_no_node_publishes_says_whom_its_selector_chooses(
    selector: dict[str, str], nodes: tuple[str, ...], text: str
) -> None:
    groups = [group("rl-x", nodeSelector=selector)]
    found = why_pending(small(claim("c", "rl-x", job="a")), world(groups, selected={"rl-x": nodes}))
    assert found == Reason(text, passing=bool(nodes))  # they may be about to publish it


def test_the_job_may_be_said_by_the_pod_alone() -> None:
    waiting = claim("c", "rl-a", pod="p")
    assert "is missing" in why(waiting, []).text
    assert why(waiting, [], pods=[pod("p", "c", job="a")]).passing


def test_the_configurations_job_wins_over_the_label() -> None:
    config = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig", "job": "z{gpus}"}
    assert "job z{gpus} is not in the group's list" in why(claim("c", "rl-a", job="a", config=config), []).text


def test_of_two_groups_in_one_claim_the_one_without_room_is_told() -> None:
    both = claim("two", "rl-a", job="b")
    both["spec"]["devices"]["requests"].append(
        {"name": "other", "exactly": {"deviceClassName": "rl-b.timeslice.dev", "count": 2}}
    )
    assert why(both, [A1]).text.startswith("group rl-b: 2 GPUs")


def test_a_gpu_with_a_free_slot_is_free() -> None:
    slices = [node_slice("node-a", *(slot(gpu, number) for gpu in (0, 1) for number in (0, 1)))]
    taken = [claim("s", "rl-b", job="b", slots=["gpu-0-slot-0", "gpu-0-slot-1", "gpu-1-slot-0"])]
    assert why(claim("x", "rl-a", job="a"), taken, slices).passing
    full = [claim("s", "rl-b", job="b", slots=[f"gpu-{gpu}-slot-{number}" for gpu in (0, 1) for number in (0, 1)])]
    found = why(claim("x", "rl-a", job="a"), full, slices)
    assert found == Reason("group rl-a: no free GPU; slots: all of gpu-0 and gpu-1 of node-a are taken")
