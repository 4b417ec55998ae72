"""The index of claims, pods and lanes, as they come, change and go."""

from __future__ import annotations

import random

from cluster_objects import Object, claim, lane, node_slice, occupancy, pod, slot, small, small_pod
from timeslice_orchestrator.kubernetes.lanes import Slice, slice_of
from timeslice_orchestrator.kubernetes.occupancy import Occupancy


def seen(raw: Object) -> Slice:
    found = slice_of(raw)
    assert found is not None
    return found


def everything(index: Occupancy) -> object:
    """All that can be asked, for a comparison."""
    lanes = [one for name in ("rl-a", "rl-b") for one in index.offered(name)]
    return (
        sorted(map(str, lanes)),
        sorted(str(user) for one in lanes for user in index.users(one)),
        {name: (index.allocated_in(name), sorted(map(str, index.asking(name)))) for name in ("rl-a", "rl-b", "slot-0")},
        {uid: index.job_of(one) for uid, one in sorted(index.claims.items())},
        sorted(map(str, index.waiting)),
        {uid: sorted(map(str, index.claims_of(one))) for uid, one in sorted(index.pods.items())},
    )


def test_what_comes_and_goes_leaves_the_same_as_what_never_changed() -> None:
    chance = random.Random(7)
    index = Occupancy()
    claims: dict[str, Object] = {}
    pods: dict[str, Object] = {}
    slices: dict[str, Object] = {}
    for _ in range(150):
        number = chance.randrange(6)
        match chance.choice(("claim", "pod", "slice")):
            case "claim":
                new = chance.choice((None, *(_claim(number, chance) for _ in range(3))))
                old = claims.pop(f"c{number}", None)
                index.change_claim(small(old) if old else None, small(new) if new else None)
                claims |= {f"c{number}": new} if new else {}
            case "pod":
                new = chance.choice((None, pod(f"p{number}", f"c{chance.randrange(6)}", job=chance.choice("abc"))))
                old = pods.pop(f"p{number}", None)
                index.change_pod(small_pod(old) if old else None, small_pod(new) if new else None)
                pods |= {f"p{number}": new} if new else {}
            case "slice":
                new = chance.choice((None, _slice(number, chance)))
                old = slices.pop(f"s{number}", None)
                index.change_slice(seen(old) if old else None, seen(new) if new else None)
                slices |= {f"s{number}": new} if new else {}
        assert everything(index) == everything(occupancy(slices.values(), claims.values(), pods.values()))


def _claim(number: int, chance: random.Random) -> Object:
    where = chance.choice(([], [("node-0", 0)], [("node-0", 0), ("node-1", 1)]))
    group_id = chance.choice(("rl-a", "rl-b"))
    return claim(f"c{number}", group_id, job=chance.choice(("", "a")), on=where, pod=f"p{chance.randrange(6)}")


def _slice(number: int, chance: random.Random) -> Object:
    devices = [lane(gpu, chance.choice(("rl-a", "rl-b"))) for gpu in (0, 1)] + [slot(2, 0)]
    raw = node_slice(f"node-{number % 2}", *devices, generation=chance.randrange(3))
    raw["metadata"]["uid"] = f"s{number}"
    return raw


def test_a_change_tells_which_groups_it_touches() -> None:
    index = occupancy([node_slice("node-a", lane(0, "rl-a"), lane(0, "rl-b"))], [])
    waiting, held = small(claim("c", "rl-a", pod="p")), small(claim("c", "rl-a", pod="p", on=[("node-a", 0)]))
    assert index.change_claim(None, waiting) == {"rl-a"}
    assert index.change_claim(waiting, held) == {"rl-a"}
    assert index.change_pod(None, small_pod(pod("p", "c"))) == {"rl-a"}
    assert index.change_pod(None, small_pod(pod("other", "d"))) == set()


def test_a_slice_touches_the_groups_whose_lanes_differ_and_slots_touch_all() -> None:
    index = Occupancy()
    first = seen(node_slice("node-a", lane(0, "rl-a"), lane(0, "rl-b"), generation=1))
    second = seen(node_slice("node-a", lane(0, "rl-a", seats=3), lane(0, "rl-b"), generation=2))
    assert index.change_slice(None, first) == {"rl-a", "rl-b"}
    assert index.change_slice(None, second) == {"rl-a"}
    assert index.change_slice(first, None) == set()
    assert index.change_slice(None, seen(node_slice("node-b", slot(0, 0)))) == {""}


def test_a_claim_by_another_device_class_counts_in_the_group_whose_lane_it_has() -> None:
    foreign = claim("c", "rl-a", on=[("node-a", 0)])
    foreign["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "all-gpus"
    index = occupancy([node_slice("node-a", lane(0, "rl-a"))], [foreign])
    assert [one.name for one in index.allocated_in("rl-a")] == ["c"]
    assert index.asking("rl-a") == []
