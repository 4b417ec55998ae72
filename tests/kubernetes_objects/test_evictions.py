"""Pods whose claim the node refused."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from api_objects import Object, Refusal
from cluster_objects import claim, pod, refused
from cluster_world import World, until
from fake_api_server import Place
from timeslice_driver.dra.refusals import Reason
from timeslice_orchestrator.kubernetes.evictions import MOVABLE, EvictionTimes

SOON = EvictionTimes(grace_s=0.2, longest_s=2.0, retry_s=0.1)


async def put_refused(world: World, name: str = "p", reason: str = "SeatsTaken", **of_pod: str) -> Object:
    owner = await world.put_pod(pod(name, f"c-{name}", node="node-a", **of_pod))
    body = claim(f"c-{name}", "rl-a", job="a", on=[("node-a", 0)])
    await world.put_claim(refused(body, reason, "gpu-0 is full"), owner)
    return owner


async def test_a_pod_is_evicted_after_the_grace_and_told_why(world: World) -> None:
    watching = await world.watch(evictions=SOON)
    owner = await put_refused(world)
    await asyncio.sleep(0.1)
    assert world.server.evictions == []
    await until(lambda: world.server.evictions == [Place("", "pods", "team", "p")])
    (call,) = [call for call in world.server.calls if call.subresource == "eviction"]
    assert call.body["deleteOptions"]["preconditions"] == {"uid": owner["metadata"]["uid"]}
    await until(lambda: watching.evicted == 1)


async def test_people_are_told_of_an_eviction(world: World) -> None:
    await world.watch(evictions=SOON)
    kept = await put_refused(world)
    await until(lambda: world.server.evictions)
    await until(lambda: world.notes("Pod", "Evicted"), within_s=2)
    assert world.notes("Pod", "Evicted") == [
        "node node-a refuses claim c-p (SeatsTaken): gpu-0 is full; "
        "evicted, so that Job/trainer makes a new pod that may find another place"
    ]
    assert world.events("Pod", "Evicted")[0]["regarding"]["uid"] == kept["metadata"]["uid"]


async def test_a_refusal_that_is_over_in_time_evicts_nobody(world: World) -> None:
    await world.watch(evictions=SOON)
    owner = await put_refused(world)
    await asyncio.sleep(0.1)
    await world.put_claim(claim("c-p", "rl-a", job="a", on=[("node-a", 0)]), owner)
    await asyncio.sleep(0.4)
    assert world.server.evictions == []


async def test_a_bare_pod_is_told_of_and_stays(world: World) -> None:
    await world.watch(evictions=SOON)
    await put_refused(world, controller="")
    await until(lambda: world.notes("Pod", "ClaimRefused"))
    assert world.notes("Pod", "ClaimRefused")[0].endswith("delete it and create it again")
    await asyncio.sleep(0.4)
    assert world.server.evictions == []


@pytest.mark.parametrize("reason", sorted(set(Reason) - MOVABLE))
async def test_a_pod_that_would_be_refused_everywhere_stays(world: World, reason: str) -> None:
    await world.watch(evictions=SOON)
    await put_refused(world, reason=reason)
    await asyncio.sleep(0.5)
    assert world.server.evictions == []


def test_every_reason_for_which_a_pod_is_moved_is_one_that_the_node_has() -> None:
    assert set(Reason) >= MOVABLE
    staying = {Reason.CONFIG_INVALID, Reason.JOB_UNKNOWN, Reason.NOT_ADMITTED, Reason.POD_MEMORY, Reason.STALE}
    assert set(Reason) - MOVABLE == staying


@pytest.mark.parametrize("phase", ["Running", "Unknown"])
async def test_a_pod_that_has_started_stays(world: World, phase: str) -> None:
    await world.watch(evictions=SOON)
    await put_refused(world, phase=phase)
    await asyncio.sleep(0.5)
    assert world.server.evictions == []


async def test_a_disruption_budget_is_respected_and_asked_again(world: World) -> None:
    refusal = Refusal(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
    world.server.refuse("POST", "pods", refusal, subresource="eviction", times=2)
    await world.watch(evictions=SOON)
    await put_refused(world)
    await until(lambda: world.notes("Pod", "EvictionFailed"))
    assert "disruption budget" in world.notes("Pod", "EvictionFailed")[0]
    await until(lambda: world.server.evictions)
    assert len([call for call in world.server.calls if call.subresource == "eviction"]) == 3


async def test_the_time_that_the_server_asks_for_is_kept(world: World) -> None:
    world.server.refuse("POST", "pods", Refusal(429, retry_after_s=1), subresource="eviction")
    await world.watch(evictions=SOON)
    await put_refused(world)
    await until(lambda: world.notes("Pod", "EvictionFailed"))
    await asyncio.sleep(0.6)
    assert world.server.evictions == []
    await until(lambda: world.server.evictions)


async def test_a_pod_of_the_same_name_that_came_after_it_is_not_evicted(world: World) -> None:
    world.server.refuse("POST", "pods", Refusal(409, "Conflict", "uid"), subresource="eviction")
    watching = await world.watch(evictions=SOON)
    await put_refused(world)
    await until(lambda: [call for call in world.server.calls if call.subresource == "eviction"])
    await asyncio.sleep(0.3)
    assert watching.evicted == 0


async def test_pods_of_one_controller_are_evicted_ever_more_slowly(world: World) -> None:
    await world.watch(evictions=EvictionTimes(grace_s=0.2, longest_s=0.5))
    await put_refused(world, "p1")
    await until(lambda: len(world.server.evictions) == 1)
    loop = asyncio.get_running_loop()

    def evicted(count: int) -> bool:
        return len(world.server.evictions) == count

    for count, name, grace_s in ((2, "p2", 0.4), (3, "p3", 0.5)):
        began = loop.time()
        await put_refused(world, name)
        await until(partial(evicted, count))
        assert loop.time() - began >= grace_s


async def test_never_more_than_so_many_evictions_a_minute(world: World) -> None:
    await world.watch(evictions=EvictionTimes(grace_s=0.1, per_minute=2))
    for number in range(4):
        await put_refused(world, f"p{number}", controller=f"job-{number}")
    await until(lambda: len(world.server.evictions) == 2)
    await asyncio.sleep(0.4)
    assert len(world.server.evictions) == 2
