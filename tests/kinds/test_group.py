"""TimesliceGroup objects: defaults, who may join, and what is wrong with one."""

from __future__ import annotations

from typing import Any

import pytest
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import TimesliceGroup, decode_group


def group(name: str = "rl-a", **spec: Any) -> TimesliceGroup:
    return decode_group({"metadata": {"name": name}, "spec": spec})


def test_an_empty_spec_is_two_seats_open_to_everybody_everywhere() -> None:
    spec = group().spec
    assert spec.seats == 2
    assert spec.admits_job("anybody")
    assert spec.admits_namespace("anywhere")
    assert spec.selects({})
    assert spec.host_memory_bytes is None


def test_lists_say_who_may_join_and_an_empty_list_says_nobody() -> None:
    spec = group(jobs=["a", "b"], namespaces=[]).spec
    assert [spec.admits_job(job) for job in ("a", "b", "c")] == [True, True, False]
    assert not spec.admits_namespace("ml")


def test_a_node_needs_every_label_of_the_selector() -> None:
    spec = group(nodeSelector={"pool": "rl", "gpu": "h100"}).spec
    assert spec.selects({"pool": "rl", "gpu": "h100", "zone": "1"})
    assert not spec.selects({"pool": "rl"})


def test_host_memory_is_a_quantity_in_words_or_a_number_of_bytes() -> None:
    assert group(hostMemoryPerGPU="80Gi").spec.host_memory_bytes == 80 * 1024**3
    assert group(hostMemoryPerGPU=2**30).spec.host_memory_bytes == 2**30


def test_jobs_that_need_a_capacity_are_those_of_spec_and_status_each_once() -> None:
    raw = {"metadata": {"name": "rl-a"}, "spec": {"jobs": ["a", "b"]}, "status": {"jobs": ["b", "c"]}}
    assert decode_group(raw).jobs == ("a", "b", "c")


def test_a_group_with_a_deletion_time_is_being_deleted() -> None:
    assert not group().deleted
    assert decode_group({"metadata": {"name": "rl-a", "deletionTimestamp": "2026-01-01T00:00:00Z"}}).deleted


def test_an_object_as_the_api_server_gives_it_is_understood() -> None:
    raw = {
        "apiVersion": "timeslice.dev/v1alpha1",
        "kind": "TimesliceGroup",
        "metadata": {
            "name": "rl-a",
            "uid": "u",
            "managedFields": [],
            "finalizers": ["timeslice.dev/claims"],
            "generation": 2,
        },
        "spec": {"lease": {"ttlSeconds": 60}},
        "status": {
            "deviceCount": 1,
            "devices": [{"node": "node-a", "device": "GPU-1"}],
            "conditions": [{"type": "Ready", "status": "True", "reason": "Serving", "lastTransitionTime": "t"}],
            "records": {"epoch": 3},
        },
    }
    found = decode_group(raw)
    assert found.spec.lease.ttl_seconds == 60
    assert found.spec.lease.grace_seconds is None
    assert [(device.node, device.device) for device in found.status.devices] == [("node-a", "GPU-1")]
    assert found.status.conditions[0].reason == "Serving"
    assert found.status.records == {"epoch": 3}


def test_a_status_written_by_a_newer_version_does_not_stop_this_one() -> None:
    assert decode_group({"metadata": {"name": "rl-a"}, "status": {"mood": "good", "waiting": 2}}).status.waiting == 2


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"seat": 2}, "spec.seat is not a field of it (did you mean seats?)"),
        ({"lease": {"ttl": 3}}, "spec.lease.ttl is not a field of it (it has graceSeconds, ttlSeconds)"),
        ({"seats": 0}, "spec.seats is 0: input should be greater than or equal to 1"),
        ({"seats": "2"}, "spec.seats is '2': input should be a valid integer"),
        ({"seats": True}, "spec.seats is True"),
        ({"jobs": ["a", "b/c"]}, "spec.jobs[1] 'b/c' is not the name of a job"),
        ({"jobs": [f"j{n}" for n in range(17)]}, "at most 16 items"),
        ({"jobs": "a"}, "spec.jobs is 'a'"),
        ({"hostMemoryPerGPU": "80Gx"}, "spec.hostMemoryPerGPU '80Gx' is not a quantity (a number with a unit"),
        ({"hostMemoryPerGPU": 1.5}, "spec.hostMemoryPerGPU 1.5 is not a quantity"),
        ({"hostMemoryPerGPU": True}, "spec.hostMemoryPerGPU True is not a quantity"),
        ({"hostMemoryPerGPU": "1k"}, "spec.hostMemoryPerGPU '1k' is less than 1Mi"),
        ({"nodeSelector": {"pool": 1}}, "spec.nodeSelector.pool is 1"),
        ({"policy": "lifo"}, "spec.policy is 'lifo': input should be 'fifo'"),
    ],
)
def test_a_wrong_field_of_the_spec_is_named(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        group(**spec)
    assert str(caught.value).startswith("TimesliceGroup rl-a: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["slot-0", "RL", "a.b", "-a", "a" * 41, ""])
def test_a_name_that_would_not_fit_a_device_or_class_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"metadata\.name"):
        group(name)


def test_something_that_is_no_object_is_refused() -> None:
    with pytest.raises(ConfigError, match="TimesliceGroup is str, not an object"):
        decode_group("rl-a")
