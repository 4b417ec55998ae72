from __future__ import annotations

import pytest
from timeslice_api.errors import ConfigError, GroupNotFound, InvalidRequest
from timeslice_driver.groups import declared

DEVICES = ("GPU-0", "GPU-1", "GPU-2")


def test_all_means_every_device_of_the_node() -> None:
    groups = declared({"default": "all"}, DEVICES)
    assert groups.covered("default") == DEVICES
    assert groups.by_device == dict.fromkeys(DEVICES, "default")


def test_a_job_covers_what_it_wants_in_the_order_of_the_group() -> None:
    groups = declared({"g": ["GPU-2", "GPU-0"]}, DEVICES)
    assert groups.covered("g") == ("GPU-2", "GPU-0")
    assert groups.covered("g", ["GPU-0"]) == ("GPU-0",)


def test_an_unknown_group_is_told_with_those_that_are_known() -> None:
    with pytest.raises(GroupNotFound, match="no group 'h' on this node; known: a, g"):
        declared({"g": ["GPU-0"], "a": ["GPU-1"]}, DEVICES).covered("h")


def test_a_device_outside_of_the_group_is_told_with_those_inside() -> None:
    with pytest.raises(InvalidRequest, match="'GPU-1' is not in group g on this node; it has GPU-0"):
        declared({"g": ["GPU-0"]}, DEVICES).covered("g", ["GPU-1"])


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["GPU-0"], "b": ["GPU-0"]}, "GPU-0 is in group a and in group b"),
        ({"a": "all", "b": ["GPU-0"]}, "GPU-0 is in group a and in group b"),
        ({"a": ["GPU-9"]}, "a names 'GPU-9', which this node does not have; it has GPU-0, GPU-1, GPU-2"),
        ({"a": []}, "a has no devices"),
        ({"a": "GPU-0"}, "a is 'GPU-0'; give a list"),
    ],
)
def test_groups_that_cannot_be_are_refused_with_the_reason(groups: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        declared(groups, DEVICES)  # type: ignore[arg-type]


def test_a_group_needs_a_name() -> None:
    with pytest.raises(InvalidRequest):
        declared({"not a name": "all"}, DEVICES)
