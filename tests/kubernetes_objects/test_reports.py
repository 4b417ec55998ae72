"""What people are told, in the running watch."""

from __future__ import annotations

import asyncio

from api_objects import Refusal
from cluster_objects import claim, group, lane, node_slice, pod
from cluster_world import World, until
from dra_kubeletplugin.apiserver import CLAIMS, NODES, PODS


async def busy(world: World) -> None:
    """One GPU, in group rl-a."""
    for name in ("rl-a", "rl-b"):
        await world.put_group(group(name))
    await world.put_slice(node_slice("node-a", lane(0, "rl-a", jobs=["a", "b"]), lane(0, "rl-b", jobs=["a", "b"])))
    await world.put_claim(claim("holder", "rl-a", job="a", on=[("node-a", 0)]))


async def test_a_pod_that_waits_is_told_why(world: World) -> None:
    await busy(world)
    await world.watch()
    owner = await world.put_pod(pod("p", "c"))
    await world.put_claim(claim("c", "rl-b", job="b"), owner)
    await until(lambda: world.notes("Pod"))
    (event,) = world.events("Pod", "WaitingForGPU")
    assert event["note"] == "group rl-b: no free GPU; gpu-0 of node-a is in group rl-a"
    assert event["regarding"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": "p",
        "namespace": "team",
        "uid": owner["metadata"]["uid"],
    }
    assert event["metadata"]["namespace"] == "team"


async def test_a_named_claim_tells_every_pod_that_waits_for_it(world: World) -> None:
    await busy(world)
    await world.watch()
    for name in ("p", "q"):
        await world.put_pod(pod(name, "shared"))
    await world.put_claim(claim("shared", "rl-b", job="b"))
    await until(lambda: len(world.events("Pod", "WaitingForGPU")) == 2)


async def test_a_pod_that_the_scheduler_has_not_tried_is_told_nothing(world: World) -> None:
    await busy(world)
    await world.watch()
    fresh = pod("p", "c")
    fresh["status"]["conditions"] = []
    await world.put_claim(claim("c", "rl-b", job="b"), await world.put_pod(fresh))
    await until(lambda: world.jobs("rl-b") == ["b"])
    await asyncio.sleep(0.2)
    assert world.events() == []


async def test_a_pod_that_should_find_room_is_told_so_only_if_it_keeps_waiting(world: World) -> None:
    await busy(world)
    await world.watch(patience_s=0.4)
    await world.put_claim(claim("c", "rl-a", job="b"), await world.put_pod(pod("p", "c")))
    await asyncio.sleep(0.2)
    assert world.events("Pod") == []
    await until(lambda: world.notes("Pod"))
    assert "node-a has room, so something else keeps the pod off" in world.notes("Pod")[0]


async def test_a_pod_whose_claim_was_allocated_meanwhile_is_left_in_peace(world: World) -> None:
    await busy(world)
    await world.watch(patience_s=0.3)
    owner = await world.put_pod(pod("p", "c"))
    await world.put_claim(claim("c", "rl-a", job="b"), owner)
    await asyncio.sleep(0.1)
    await world.put_claim(claim("c", "rl-a", job="b", on=[("node-a", 0)]), owner)
    await asyncio.sleep(0.5)
    assert world.events("Pod") == []


async def test_a_claim_that_is_not_admitted_is_told_on_claim_and_pod(world: World) -> None:
    await world.put_group(group("rl-a", jobs=["a", "b"]))
    await world.watch()
    await world.put_claim(claim("c", "rl-a", job="z"), await world.put_pod(pod("p", "c")))
    text = "group rl-a: job z is not in the group's list (admitted: a and b)"
    await until(lambda: world.notes("ResourceClaim", "NotAdmitted") == [text])
    await until(lambda: world.notes("Pod", "WaitingForGPU") == [text])
    assert world.jobs("rl-a") == []


async def test_a_group_that_no_node_publishes_names_the_nodes_that_it_chooses(world: World) -> None:
    for name, labels in (("node-a", {"gpu": "yes"}), ("node-b", {})):
        await world.server.put(NODES, {"metadata": {"name": name, "labels": labels}})
    await world.put_group(group("rl-x", nodeSelector={"gpu": "yes"}))
    await world.watch()
    await world.put_claim(claim("c", "rl-x", job="a"), await world.put_pod(pod("p", "c")))
    await until(lambda: world.notes("Pod"))
    assert world.notes("Pod")[0].startswith("no node publishes group rl-x (nodeSelector gpu=yes matches node-a:")


async def test_the_nodes_of_a_selector_are_not_asked_for_at_every_change(world: World) -> None:
    await world.put_group(group("rl-x"))
    await world.watch()
    for number in range(4):
        await world.put_claim(claim(f"c{number}", "rl-x", job="a"))
        await asyncio.sleep(0.05)
    assert len([call for call in world.server.calls if call.place.plural == "nodes"]) == 1


async def test_trouble_with_the_nodes_is_tried_again(world: World) -> None:
    await world.put_group(group("rl-x"))
    world.server.refuse("GET", "nodes", Refusal(500, "InternalError"))
    await world.watch()
    await world.put_claim(claim("c", "rl-x", job="a"), await world.put_pod(pod("p", "c")))
    await until(lambda: world.notes("Pod"))


async def test_a_label_that_is_not_followed_is_told_on_claim_and_pod_and_counted_once(world: World) -> None:
    await busy(world)
    watching = await world.watch()
    owner = await world.put_pod(pod("p", "c", job="other", node="node-a"))
    await world.put_claim(claim("c", "rl-a", job="b", on=[("node-a", 0)]), owner)
    text = "pod p has label timeslice.dev/job=other, but the claim's label says b, which counts"
    await until(lambda: world.notes("Pod", "LabelNotFollowed") == [text])
    await until(lambda: world.notes("ResourceClaim", "LabelNotFollowed") == [text])
    await world.put_claim(claim("another", "rl-a", job="a"))
    await asyncio.sleep(0.2)
    assert watching.disagreements == 1


async def test_what_is_said_of_gone_pods_takes_no_memory(world: World) -> None:
    await busy(world)
    watching = await world.watch()
    await world.put_claim(claim("c", "rl-b", job="b"), await world.put_pod(pod("p", "c")))
    await until(lambda: world.notes("Pod"))
    await world.server.remove(PODS, "p", namespace="team")
    await world.server.remove(CLAIMS, "c", namespace="team")
    await until(lambda: not watching._events._said)
