from __future__ import annotations

from typing import Any

import pytest
from dra_kubeletplugin import Pool, Slice
from dra_kubeletplugin.apiserver import Object
from dra_kubeletplugin.publishing.plan import Owner, Plan, contents, plan

OWNER = Owner("gpu.example.com", "node-a")


def devices(count: int, **more: Any) -> list[Object]:
    return [{"name": f"gpu-{number}", **more} for number in range(count)]


def lengths(pool: Pool) -> list[int]:
    return [len(part.devices) for part in pool.slices]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({}, [128, 1]),
        ({"attributes": {"x": {"strings": ["a"]}}}, [64, 64, 1]),
        ({"taints": [{"key": "k"}]}, [64, 64, 1]),
        ({"consumesCounters": [{}]}, [64, 64, 1]),
        ({"attributes": {"x": {"string": "a"}}, "taints": [], "capacity": {"m": {"value": "1"}}}, [128, 1]),
    ],
)
def test_devices_are_cut_to_the_limit_that_holds_for_them(more: dict[str, Any], expected: list[int]) -> None:
    assert lengths(Pool.of(devices(129, **more))) == expected


def test_counter_sets_come_first_in_slices_of_their_own() -> None:
    pool = Pool.of(devices(1), [{"name": f"c{number}"} for number in range(9)])
    assert [(len(part.shared_counters), len(part.devices)) for part in pool.slices] == [(8, 0), (1, 0), (0, 1)]


def test_a_pool_without_devices_is_one_empty_slice() -> None:
    assert Pool.of([]) == Pool() == Pool((Slice(),))
    assert contents(Pool(())) == [{}]


# What is done about the slices that exist


def stored(place: int, generation: int, count: int, *parts: Object, **metadata: Any) -> Object:
    name = f"{place:05x}-gpu.example.com-node-a-{generation}"
    spec = {
        "driver": OWNER.driver,
        "nodeName": OWNER.node,
        "pool": {"name": "p", "generation": generation, "resourceSliceCount": count},
        "devices": list(parts),
    }
    return {"metadata": {"name": name, "uid": f"u{name}", "resourceVersion": "1"} | metadata, "spec": spec}


def planned(pool: Pool, *existing: Object, least: int = 0) -> Plan:
    return plan(OWNER, "p", contents(pool), existing=existing, least=least)


A, B, C = {"name": "a"}, {"name": "b"}, {"name": "c"}


def test_the_first_time_everything_is_created_in_generation_one() -> None:
    steps = planned(Pool((Slice((A,)), Slice((B,)))))
    assert (steps.delete, steps.update, steps.generation) == ((), (), 1)
    first, second = [item for _, item in steps.create]
    assert first["metadata"]["generateName"] == "00000-gpu.example.com-node-a-"
    assert second["metadata"]["generateName"] == "00001-gpu.example.com-node-a-"
    assert first["spec"] == {
        "driver": "gpu.example.com",
        "nodeName": "node-a",
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 2},
        "devices": [A],
    }


def test_what_is_as_wanted_is_left_alone() -> None:
    steps = planned(Pool((Slice((A,)), Slice((B,)))), stored(1, 3, 2, B), stored(0, 3, 2, A))
    assert (steps.delete, steps.update, steps.create) == ((), (), ())


def test_one_changed_slice_is_updated_within_its_generation() -> None:
    steps = planned(Pool((Slice((A,)), Slice((C,)))), stored(0, 3, 2, A), stored(1, 3, 2, B))
    assert (steps.delete, steps.create, steps.generation) == ((), (), 3)
    ((place, item),) = steps.update
    assert (place, item["spec"]["devices"], item["spec"]["pool"]["generation"]) == (1, [C], 3)


def test_two_changed_slices_need_a_new_generation_of_all() -> None:
    wanted = Pool((Slice((A,)), Slice((B,)), Slice((C,))))
    steps = planned(wanted, stored(0, 3, 3, A), stored(1, 3, 3, C), stored(2, 3, 3, B))
    assert [place for place, _ in steps.update] == [0, 1, 2]
    assert {item["spec"]["pool"]["generation"] for _, item in steps.update} == {4}


def test_a_missing_slice_needs_a_new_generation_of_all() -> None:
    steps = planned(Pool((Slice((A,)), Slice((B,)))), stored(0, 3, 2, A))
    assert [(place, item["spec"]["pool"]["generation"]) for place, item in steps.update] == [(0, 4)]
    assert [(place, item["spec"]["pool"]["generation"]) for place, item in steps.create] == [(1, 4)]


def test_a_pool_that_shrinks_to_one_slice_says_so_in_it() -> None:
    steps = planned(Pool((Slice((A,)),)), stored(0, 3, 2, A), stored(1, 3, 2, B))
    assert [item["metadata"]["name"][:5] for item in steps.delete] == ["00001"]
    ((_, item),) = steps.update
    assert item["spec"]["pool"] == {"name": "p", "generation": 3, "resourceSliceCount": 1}


def test_older_generations_doubles_and_foreign_names_are_deleted() -> None:
    double, foreign = stored(0, 3, 1, A), stored(0, 3, 1, A)
    double["metadata"] |= {"name": "00000-gpu.example.com-node-a-zzz", "uid": "double"}
    foreign["metadata"] |= {"name": "node-a-gpu.example.com-x", "uid": "foreign"}
    steps = planned(Pool((Slice((A,)),)), foreign, double, stored(0, 2, 1, A), stored(0, 3, 1, A))
    assert len(steps.delete) == 3
    assert (steps.update, steps.create) == ((), ())


def test_a_slice_that_is_being_deleted_is_replaced() -> None:
    going = stored(0, 3, 1, A, deletionTimestamp="2026-11-29T16:00:00Z")
    steps = planned(Pool((Slice((A,)),)), going)
    assert [place for place, _ in steps.create] == [0]


def test_a_generation_is_never_used_again() -> None:
    assert planned(Pool((Slice((A,)),)), least=7).generation == 8


def test_an_update_leaves_out_what_the_driver_does_not_decide() -> None:
    old = stored(0, 3, 1, B)
    old["spec"]["perDeviceNodeSelection"] = True
    ((_, item),) = planned(Pool((Slice((A,)),)), old).update
    assert set(item["spec"]) == {"driver", "nodeName", "pool", "devices"}
    assert item["metadata"] == old["metadata"]
