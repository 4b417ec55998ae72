"""DeviceClasses and conditions of groups, and what becomes of groups that do not decode."""

from __future__ import annotations

import copy

import pytest
from cluster_objects import Object, claim, group, groups_of, lane, node_slice, occupancy, slot, small
from timeslice_api.kinds.group import TimesliceGroup
from timeslice_orchestrator.kubernetes.conditions import Condition, applied, conditions, differ
from timeslice_orchestrator.kubernetes.device_classes import Step, healed, step, wanted
from timeslice_orchestrator.kubernetes.groups import Groups, kept_of_group
from timeslice_orchestrator.kubernetes.jobs import Jobs


def one(raw: Object) -> TimesliceGroup:
    (found,) = groups_of([raw]).values()
    return found


def leaving(name: str = "rl-a") -> Object:
    raw = group(name)
    raw["metadata"]["deletionTimestamp"] = "2026-11-29T16:00:00Z"
    return raw


def test_a_class_chooses_the_groups_lanes_and_any_slot_and_asks_the_driver_first() -> None:
    body = wanted(one(group("rl-a")))
    assert body["metadata"]["name"] == "rl-a.timeslice.dev"
    assert body["spec"]["selectors"] == [
        {
            "cel": {
                "expression": "device.driver == 'gpu.timeslice.dev' && "
                "(device.attributes['gpu.timeslice.dev'].group == 'rl-a' || "
                "device.attributes['gpu.timeslice.dev'].mode == 'slots')"
            }
        }
    ]
    assert body["spec"]["config"][0]["opaque"]["parameters"] == {
        "apiVersion": "timeslice.dev/v1alpha1",
        "kind": "TimesliceConfig",
        "group": "rl-a",
    }
    assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-rl-a"


def edited(body: Object, **spec: object) -> Object:
    return {**body, "spec": {**body["spec"], **spec}}


def disowned(body: Object) -> Object:
    return {**body, "metadata": {**body["metadata"], "ownerReferences": [{"uid": "an older group"}]}}


def theirs(body: Object) -> Object:
    return {**body, "metadata": {**body["metadata"], "labels": {}}}


def going(body: Object) -> Object:
    return {**body, "metadata": {**body["metadata"], "deletionTimestamp": "2026-11-29T16:00:00Z"}}


OURS = wanted(one(group("rl-a")))


@pytest.mark.parametrize(
    ("raw", "found", "todo"),
    [
        (group("rl-a"), None, Step.CREATE),
        (group("rl-a"), OURS, Step.NOTHING),
        (group("rl-a"), edited(OURS, selectors=[]), Step.REPLACE),
        (group("rl-a"), edited(OURS, extendedResourceName="example.com/gpu"), Step.REPLACE),
        (group("rl-a"), disowned(OURS), Step.REPLACE),
        (group("rl-a"), theirs(OURS), Step.REPORT),
        (leaving(), OURS, Step.DELETE),
        (leaving(), going(OURS), Step.NOTHING),
        (leaving(), None, Step.NOTHING),
        (leaving(), theirs(OURS), Step.NOTHING),
    ],
)
def test_what_a_class_needs(raw: Object, found: Object | None, todo: Step) -> None:
    assert step(one(raw), found) is todo


def test_a_healed_class_keeps_its_version_and_the_labels_of_others() -> None:
    found = copy.deepcopy(disowned(edited(OURS, selectors=[])))
    found["metadata"] |= {"resourceVersion": "7", "labels": {**found["metadata"]["labels"], "team": "x"}}
    mended = healed(one(group("rl-a")), found)
    assert mended["spec"] == OURS["spec"]
    assert mended["metadata"]["resourceVersion"] == "7"
    assert mended["metadata"]["labels"]["team"] == "x"
    assert step(one(group("rl-a")), mended) is Step.NOTHING


def told(
    raw: Object, *devices: Object, jobs: Jobs | None = None, claims: tuple[Object, ...] = (), taken: bool = False
) -> dict[str, Condition]:
    seen = occupancy([node_slice("node-a", *devices)], claims)
    found = conditions(
        one(raw),
        seen.offered(raw["metadata"]["name"]),
        jobs=jobs or Jobs(),
        allocated=[small(one_claim) for one_claim in claims],
        class_taken=taken,
    )
    return {condition.type: condition for condition in found}


def test_a_group_with_lanes_is_ready_and_has_no_other_condition() -> None:
    found = told(group("rl-a"), lane(0, "rl-a"), lane(1, "rl-a"), lane(0, "rl-b"))
    assert found == {"Ready": Condition("Ready", True, "Published", "2 GPUs of node-a")}


def test_a_group_that_no_node_publishes_is_not_ready() -> None:
    assert told(group("rl-a"), lane(0, "rl-b"))["Ready"].reason == "NoNode"


def test_a_class_of_somebody_else_keeps_a_group_from_being_ready() -> None:
    assert told(group("rl-a"), lane(0, "rl-a"), taken=True)["Ready"].reason == "DeviceClassTaken"


def test_slots_are_told_with_what_they_do_not_hold() -> None:
    found = told(group("rl-a"), slot(0, 0))
    assert found["Ready"].status
    assert found["LanesUnavailable"].message.startswith("node-a publishes slots")


def test_a_group_that_is_being_deleted_says_what_is_still_allocated() -> None:
    found = told(leaving(), lane(0, "rl-a"), claims=(claim("c", "rl-a", on=[("node-a", 0)]),))
    assert not found["Ready"].status
    assert found["Draining"] == Condition("Draining", True, "ClaimsAllocated", "still allocated: team/c")
    assert told(leaving())["Draining"].reason == "Drained"


def test_a_group_that_is_full_names_who_must_wait() -> None:
    found = told(group("rl-a"), lane(0, "rl-a"), jobs=Jobs(("a",), ("late",)))
    assert found["JobsFull"].message == "16 jobs have claims, the most there can be; late must wait"


READY = Condition("Ready", True, "Published", "1 GPU of node-a")


def test_conditions_are_written_when_one_differs_and_not_when_none_does() -> None:
    raw = group("rl-a")
    assert differ(raw, [READY])
    raw["status"]["conditions"] = applied(raw, [READY], "2026-11-29T16:00:00Z")
    assert not differ(raw, [READY])
    assert differ(raw, [])
    assert differ(raw, [READY, Condition("Draining", True, "Drained", "")])
    raw["metadata"]["generation"] = 2
    assert differ(raw, [READY])


def test_conditions_of_others_are_none_of_ours() -> None:
    raw = group("rl-a")
    foreign = {"type": "Backup", "status": "True", "reason": "x"}
    raw["status"]["conditions"] = [foreign, *applied(raw, [READY], "now")]
    assert not differ(raw, [READY])


def test_the_time_of_a_transition_stays_while_the_status_does() -> None:
    raw = group("rl-a")
    raw["status"]["conditions"] = applied(raw, [READY], "long ago")
    (same,) = applied(raw, [Condition("Ready", True, "Published", "2 GPUs")], "now")
    assert same["lastTransitionTime"] == "long ago"
    (changed,) = applied(raw, [Condition("Ready", False, "NoNode", "")], "now")
    assert changed["lastTransitionTime"] == "now"


def test_a_group_that_does_not_decode_is_reported_and_its_last_good_version_stays() -> None:
    groups = Groups()
    assert groups.take(group("rl-a", jobs=["a"]))
    assert groups.take(group("rl-a", jobs=["a"], colour="red"))
    assert groups.good["rl-a"].spec.jobs == ("a",)
    assert "colour" in groups.problems["rl-a"]
    assert groups.take(group("rl-a", jobs=["b"]))
    assert groups.problems == {}


def test_a_group_that_never_decoded_is_not_in_force() -> None:
    groups = Groups()
    groups.take(group("rl-a", seats="many"))
    assert list(groups.good) == []
    assert list(groups.raw) == ["rl-a"]


def test_a_change_of_status_alone_is_none_for_discovery() -> None:
    groups = Groups()
    groups.take(group("rl-a"))
    assert not groups.take(group("rl-a", status_jobs=["a"]))
    assert groups.good["rl-a"].status.jobs == ("a",)


def test_a_group_that_was_made_anew_is_not_dropped_with_the_old_one() -> None:
    groups = Groups()
    old, new = group("rl-a"), group("rl-a")
    new["metadata"]["uid"] = "another"
    groups.take(old)
    groups.take(new)
    assert not groups.drop(old)
    assert list(groups.good) == ["rl-a"]
    assert groups.drop(new)
    assert list(groups.good) == []


def test_leases_are_not_kept_of_a_groups_status() -> None:
    raw = group("rl-a", status_jobs=["a"])
    raw["status"]["records"] = {"leases": ["x" * 1000]}
    raw["metadata"]["managedFields"] = []
    kept = kept_of_group(raw)
    assert kept["status"] == {"jobs": ["a"], "conditions": []}
    assert "managedFields" not in kept["metadata"]
