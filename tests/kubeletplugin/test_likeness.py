from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from dra_kubeletplugin.apiserver import Object
from dra_kubeletplugin.publishing.likeness import alike, amount, dropped, with_times

NOW, LATER = "2026-11-29T16:00:00Z", "2026-11-29T17:00:00Z"


def spec(**device: Any) -> Object:
    return {"devices": [{"name": "gpu-0", **device}]}


@pytest.mark.parametrize(
    ("quantity", "value"),
    [
        ("80Gi", 85899345920),
        ("85899345920", 85899345920),
        (1, 1),
        ("1k", 1000),
        ("1500m", Decimal("1.5")),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        ("0.5Mi", 524288),
        ("3n", Decimal("3e-9")),
        ("-1", -1),
    ],
)
def test_a_quantity_is_a_number(quantity: object, value: object) -> None:
    assert amount(quantity) == value


@pytest.mark.parametrize("text", ["", "Gi", "1 Gi", "1Zi", "1.2.3", "abc"])
def test_what_is_no_quantity_is_none(text: str) -> None:
    assert amount(text) is None


def test_quantities_are_compared_by_what_they_mean() -> None:
    policy = {"default": "1Gi", "validRange": {"min": "1Mi", "step": "1024Ki"}}
    written = {"default": "1024Mi", "validRange": {"min": "1Mi", "step": "1Mi"}}
    wanted = spec(capacity={"memory": {"value": "80Gi", "requestPolicy": policy}})
    assert alike(wanted, spec(capacity={"memory": {"value": "85899345920", "requestPolicy": written}}))
    assert not alike(wanted, spec(capacity={"memory": {"value": "80Gi", "requestPolicy": policy | {"default": "1"}}}))


def test_counters_are_quantities_too() -> None:
    wanted = {"sharedCounters": [{"name": "1000m", "counters": {"lane": {"value": "1000m"}}}]}
    assert alike(wanted, {"sharedCounters": [{"name": "1000m", "counters": {"lane": {"value": "1"}}}]})
    assert not alike(wanted, {"sharedCounters": [{"name": "1", "counters": {"lane": {"value": "1"}}}]})


def test_attributes_are_compared_as_they_are_written() -> None:
    assert not alike(spec(attributes={"x": {"string": "1000m"}}), spec(attributes={"x": {"string": "1"}}))
    assert not alike(spec(attributes={"capacity": {"string": "1k"}}), spec(attributes={"capacity": {"string": "1000"}}))
    assert not alike(spec(attributes={"x": {"string": ""}}), spec(attributes={}))
    assert not alike(spec(attributes={"x": {"bool": True}}), spec(attributes={"x": {"int": 1}}))


def test_the_order_of_devices_counts() -> None:
    assert not alike({"devices": [{"name": "a"}, {"name": "b"}]}, {"devices": [{"name": "b"}, {"name": "a"}]})


def test_nothing_and_empty_are_the_same() -> None:
    assert alike({"devices": []}, {})
    assert alike(spec(taints=[], attributes={}), spec())
    assert not dropped(spec(taints=[]), spec())


def test_a_taint_without_a_time_matches_one_with_any() -> None:
    taint = {"key": "sick", "effect": "NoSchedule"}
    assert alike(spec(taints=[taint]), spec(taints=[taint | {"timeAdded": NOW}]))
    assert not alike(spec(taints=[taint | {"value": "x"}]), spec(taints=[taint | {"timeAdded": NOW}]))
    assert not alike(spec(taints=[taint | {"timeAdded": LATER}]), spec(taints=[taint | {"timeAdded": NOW}]))
    assert alike(
        spec(taints=[taint | {"timeAdded": "2026-11-29T16:00:00.7Z"}]), spec(taints=[taint | {"timeAdded": NOW}])
    )


def test_a_taint_that_stays_keeps_the_time_it_was_added() -> None:
    old, new = {"key": "sick", "effect": "NoSchedule"}, {"key": "new", "effect": "NoExecute"}
    stored = {"devices": [{"name": "gpu-1"}, {"name": "gpu-0", "taints": [old | {"timeAdded": NOW}]}]}
    kept = with_times(spec(taints=[new, old]), stored)
    assert kept == spec(taints=[new, old | {"timeAdded": NOW}])
    given = spec(taints=[old | {"timeAdded": LATER}])
    assert with_times(given, stored) == given


def test_dropped_fields_are_named_without_positions() -> None:
    wanted = {
        "devices": [
            {"name": "a", "allowMultipleAllocations": True, "consumesCounters": [{"counterSet": "g"}]},
            {
                "name": "b",
                "allowMultipleAllocations": True,
                "capacity": {"m": {"value": "1", "requestPolicy": {"x": 1}}},
            },
        ],
        "sharedCounters": [{"name": "g"}],
    }
    stored = {"devices": [{"name": "a"}, {"name": "b", "capacity": {"m": {"value": "1"}}}]}
    assert dropped(wanted, stored) == (
        "devices.allowMultipleAllocations",
        "devices.capacity.m.requestPolicy",
        "devices.consumesCounters",
        "sharedCounters",
    )


def test_what_the_server_adds_is_not_dropped() -> None:
    assert not dropped(spec(), spec(novelty=1))
