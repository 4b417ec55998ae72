from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from dra_kubeletplugin import DroppedFieldsError, InvalidPoolError, Pool, PublishError, Slice
from dra_kubeletplugin.apiserver import NODES, SLICES, ApiServer, Object
from dra_kubeletplugin.publishing.plan import Owner
from dra_kubeletplugin.publishing.publisher import Publisher
from dra_kubeletplugin.publishing.sight import LASTING_S, Sight
from fake_api_server import Call, FakeApiServer, Place, Refusal
from scripted_driver import DRIVER, NODE, ScriptedDriver

A, B, C = {"name": "a"}, {"name": "b"}, {"name": "c"}
HEAL_S = 0.1


@asynccontextmanager
async def running(publisher: Publisher) -> AsyncIterator[Publisher]:
    task = asyncio.create_task(publisher.run())
    try:
        yield publisher
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest_asyncio.fixture
async def publisher(server: FakeApiServer, api: ApiServer, driver: ScriptedDriver) -> AsyncIterator[Publisher]:
    await server.put(NODES, {"metadata": {"name": NODE}})
    async with running(Publisher(Owner(DRIVER, NODE), api, failed=driver.failed, heal_s=HEAL_S)) as started:
        yield started


async def publish(publisher: Publisher, **pools: Pool) -> None:
    publisher.publish(pools)
    async with asyncio.timeout(5):
        await publisher.published()


async def until(true: Callable[[], bool], within_s: float = 8) -> None:
    async with asyncio.timeout(within_s):
        while not true():
            await asyncio.sleep(0.02)


def found(server: FakeApiServer) -> list[list[str]]:
    """Names of devices by slice, in the order of slices."""
    items = sorted(server.all(SLICES), key=lambda item: item["metadata"]["name"])
    return [[device["name"] for device in item["spec"].get("devices", ())] for item in items]


def generations(server: FakeApiServer) -> set[int]:
    return {item["spec"]["pool"]["generation"] for item in server.all(SLICES)}


def writes(server: FakeApiServer) -> list[str]:
    calls = [call for call in server.calls if call.place.plural == "resourceslices"]
    return [call.method for call in calls if call.method != "GET"]


TWO = Pool((Slice((A,)), Slice((B,))))


async def test_a_pool_is_written_with_its_node_as_owner(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    assert found(server) == [["a"], ["b"]]
    node = server.one(NODES, NODE)
    assert node
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": node["metadata"]["uid"], "controller": True}
    assert [item["metadata"]["ownerReferences"] for item in server.all(SLICES)] == [[owner], [owner]]
    assert publisher.slices == 2


async def test_nothing_is_written_before_something_is_published(server: FakeApiServer, publisher: Publisher) -> None:
    await asyncio.sleep(0.3)
    assert not writes(server)


async def test_a_pool_without_devices_is_published_as_such(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=Pool())
    assert found(server) == [[]]


async def test_what_a_former_run_left_is_taken_over(
    server: FakeApiServer, api: ApiServer, publisher: Publisher
) -> None:
    await publish(publisher, p=TWO, gone=Pool((Slice((C,)),)))
    before = len(server.calls)
    async with running(Publisher(Owner(DRIVER, NODE), api, failed=ScriptedDriver().failed)) as second:
        await publish(second, p=TWO)
        await until(lambda: found(server) == [["a"], ["b"]])
    methods = [call.method for call in server.calls[before:] if call.method != "GET"]
    assert methods == ["DELETE"], "only the pool that nobody wants is touched"


async def test_other_drivers_and_other_nodes_slices_are_not_touched(
    server: FakeApiServer, publisher: Publisher
) -> None:
    pool = {"name": "p", "generation": 9, "resourceSliceCount": 1}
    await server.put(SLICES, {"metadata": {"name": "x"}, "spec": {"driver": "x", "nodeName": NODE, "pool": pool}})
    await server.put(SLICES, {"metadata": {"name": "y"}, "spec": {"driver": DRIVER, "nodeName": "y", "pool": pool}})
    await publish(publisher, p=TWO)
    assert generations(server) == {1, 9}
    assert "DELETE" not in writes(server)


async def test_a_change_is_one_write_and_no_change_is_none(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    await publish(publisher, p=Pool((Slice((A,)), Slice((C,)))))
    await publish(publisher, p=Pool((Slice((A,)), Slice((C,)))))
    assert writes(server) == ["POST", "POST", "PUT"]
    assert (found(server), generations(server)) == ([["a"], ["c"]], {1})


async def test_several_changes_raise_the_generation_of_the_whole_pool(
    server: FakeApiServer, publisher: Publisher
) -> None:
    await publish(publisher, p=TWO)
    await publish(publisher, p=Pool((Slice((A,)), Slice((B,)), Slice((C,)))))
    assert (found(server), generations(server)) == ([["a"], ["b"], ["c"]], {2})


async def test_a_pool_that_is_no_longer_published_goes(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO, q=Pool((Slice((C,)),)))
    await publish(publisher, q=Pool((Slice((C,)),)))
    assert found(server) == [["c"]]


async def test_own_writes_are_no_news(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    await asyncio.sleep(5 * HEAL_S)
    assert writes(server) == ["POST", "POST"]


async def test_slices_are_not_created_twice_when_the_watch_is_late(server: FakeApiServer, publisher: Publisher) -> None:
    server.fall_silent()
    await publish(publisher, p=TWO)
    await publish(publisher, p=Pool((Slice((A,)), Slice((C,)))))
    assert writes(server) == ["POST", "POST", "PUT"]
    server.fall_silent(False)


async def test_what_kubelet_deletes_when_it_starts_comes_back(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    for item in server.all(SLICES):
        await server.remove(SLICES, item["metadata"]["name"])
    await until(lambda: found(server) == [["a"], ["b"]])
    assert len(generations(server)) == 1


async def test_one_slice_deleted_by_hand_comes_back_with_a_complete_pool(
    server: FakeApiServer, publisher: Publisher
) -> None:
    await publish(publisher, p=TWO)
    await server.remove(SLICES, server.all(SLICES)[0]["metadata"]["name"])
    await until(lambda: found(server) == [["a"], ["b"]] and generations(server) == {2})


async def test_what_is_deleted_comes_back_soon_when_the_watch_is_faster_than_the_answers_to_writes(
    server: FakeApiServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = server.store.create

    async def create_slowly(place: Place, body: Object) -> Object:
        made = await create(place, body)
        await asyncio.sleep(0.1)
        return made

    monkeypatch.setattr(server.store, "create", create_slowly)
    for count in range(1, 8):  # own writes must not make the waits grow
        await publish(publisher, p=Pool(tuple(Slice(({"name": f"d{number}"},)) for number in range(count))))
    before = {item["metadata"]["uid"] for item in server.all(SLICES)}
    for item in server.all(SLICES):
        await server.remove(SLICES, item["metadata"]["name"])
    await until(lambda: len(server.all(SLICES)) == 7, within_s=2)
    assert not before & {item["metadata"]["uid"] for item in server.all(SLICES)}


async def test_what_somebody_changes_during_a_write_is_changed_back(
    server: FakeApiServer, publisher: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = server.store.create

    async def create_and_meddle(place: Place, body: Object) -> Object:
        made = await create(place, body)
        for item in server.all(SLICES):
            await server.remove(SLICES, item["metadata"]["name"])
        await asyncio.sleep(0.1)
        monkeypatch.setattr(server.store, "create", create)
        return made

    monkeypatch.setattr(server.store, "create", create_and_meddle)
    await publish(publisher, p=Pool((Slice((A,)),)))
    await until(lambda: found(server) == [["a"]], within_s=2)


async def test_a_slice_changed_by_hand_is_changed_back(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    item = copy.deepcopy(server.all(SLICES)[0])
    item["spec"]["devices"] = [C]
    await server.put(SLICES, item)
    await until(lambda: found(server) == [["a"], ["b"]])


async def test_somebody_who_keeps_changing_it_back_does_not_make_a_storm(
    server: FakeApiServer, publisher: Publisher
) -> None:
    await publish(publisher, p=Pool((Slice((A,)),)))
    before = len(writes(server))
    for _ in range(40):
        item = copy.deepcopy(server.all(SLICES)[0])
        item["spec"]["devices"] = [C]
        await server.put(SLICES, item)
        await asyncio.sleep(0.05)
    assert len(writes(server)) - before < 10


async def test_a_node_that_is_made_anew_owns_the_new_slices(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=Pool((Slice((A,)),)))
    await server.remove(NODES, NODE)
    new = await server.put(NODES, {"metadata": {"name": NODE}})
    await server.remove(SLICES, server.all(SLICES)[0]["metadata"]["name"])  # by garbage collection
    await until(lambda: found(server) == [["a"]])
    assert server.all(SLICES)[0]["metadata"]["ownerReferences"][0]["uid"] == new["metadata"]["uid"]


async def test_a_node_that_is_missing_is_told_and_waited_for(
    server: FakeApiServer, publisher: Publisher, driver: ScriptedDriver
) -> None:
    await server.remove(NODES, NODE)
    publisher.publish({"p": TWO})
    await driver.until_failures(1)
    assert "no node node-a" in str(driver.failures[0])
    await server.put(NODES, {"metadata": {"name": NODE}})
    async with asyncio.timeout(5):
        await publisher.published()


async def test_failures_are_told_and_retried_with_growing_waits(
    server: FakeApiServer, publisher: Publisher, driver: ScriptedDriver
) -> None:
    server.refuse("POST", "resourceslices", Refusal(500, "InternalError", "etcd is away"), times=3)
    await publish(publisher, p=TWO)
    assert [type(error) for error in driver.failures] == [PublishError] * 3
    assert "etcd is away" in str(driver.failures[0])


async def test_a_server_that_is_away_for_a_while_is_ridden_out(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    await server.stop()
    publisher.publish({"p": Pool((Slice((C,)),))})
    await asyncio.sleep(0.5)
    await server.start()
    await until(lambda: found(server) == [["c"]])


async def test_an_invalid_pool_is_told_once_and_left_until_something_else_is_published(
    server: FakeApiServer, publisher: Publisher, driver: ScriptedDriver
) -> None:
    refusal = Refusal(422, "Invalid", "spec.devices[0].name: Invalid value", causes=(("spec.devices[0].name", "bad"),))
    server.refuse("POST", "resourceslices", refusal, times=100)
    with pytest.raises(InvalidPoolError):
        await publish(publisher, p=Pool((Slice(({"name": "A"},)),)), q=Pool())
    await asyncio.sleep(1)
    pools = sorted(error.pool for error in driver.failures if isinstance(error, InvalidPoolError))
    assert pools == ["p", "q"]
    (error,) = [error for error in driver.failures if isinstance(error, InvalidPoolError) and error.pool == "p"]
    assert error.causes == (("spec.devices[0].name", "bad"),)
    assert len(writes(server)) == 2
    server.hooks.clear()
    await publish(publisher, p=Pool((Slice((A,)),)))
    assert found(server) == [["a"]]


def without_gates(call: Call) -> Refusal | None:
    """As a server without DRAConsumableCapacity and DRAPartitionableDevices stores it."""
    if call.place.plural == "resourceslices" and call.method in ("POST", "PUT"):
        call.body["spec"].pop("sharedCounters", None)
        for device in call.body["spec"].get("devices", ()):
            device.pop("consumesCounters", None)
            device.pop("allowMultipleAllocations", None)
    return None


LANES = Pool(
    (
        Slice(shared_counters=({"name": "gpu-0", "counters": {"lane": {"value": "1"}}},)),
        Slice(
            devices=({"name": "a", "allowMultipleAllocations": True, "consumesCounters": [{"counterSet": "gpu-0"}]},)
        ),
    )
)


async def test_fields_that_the_server_drops_are_named_once_and_not_fought_for(
    server: FakeApiServer, publisher: Publisher, driver: ScriptedDriver
) -> None:
    server.hooks.append(without_gates)
    with pytest.raises(DroppedFieldsError) as caught:
        await publish(publisher, p=LANES)
    assert caught.value.fields == ("devices.allowMultipleAllocations", "devices.consumesCounters", "sharedCounters")
    await asyncio.sleep(5 * HEAL_S)
    assert writes(server) == ["POST", "POST"]
    assert len(driver.failures) == 1
    for item in server.all(SLICES):
        await server.remove(SLICES, item["metadata"]["name"])
    await until(lambda: found(server) == [[], ["a"]])
    assert len(driver.failures) == 1, "what it can store is healed without a word"


async def test_dropped_fields_are_not_forgotten_over_a_failure_in_between(
    server: FakeApiServer, publisher: Publisher, driver: ScriptedDriver
) -> None:
    server.hooks.append(without_gates)
    failed: list[Any] = []

    def fail_second(call: Call) -> Refusal | None:
        if call.method == "POST" and "devices" in call.body["spec"] and not failed:
            failed.append(call)
            return Refusal(500, "InternalError")
        return None

    server.hooks.append(fail_second)
    with pytest.raises(DroppedFieldsError) as caught:
        await publish(publisher, p=LANES)
    assert "sharedCounters" in caught.value.fields


async def test_after_dropped_fields_something_else_can_be_published(
    server: FakeApiServer, publisher: Publisher
) -> None:
    server.hooks.append(without_gates)
    with pytest.raises(DroppedFieldsError):
        await publish(publisher, p=LANES)
    await publish(publisher, p=TWO)
    assert found(server) == [["a"], ["b"]]


async def test_times_that_the_server_gives_to_taints_stay(server: FakeApiServer, publisher: Publisher) -> None:
    def add_times(call: Call) -> Refusal | None:
        if call.method in ("POST", "PUT") and call.place.plural == "resourceslices":
            for device in call.body["spec"].get("devices", ()):
                for taint in device.get("taints", ()):
                    taint.setdefault("timeAdded", f"2026-11-29T16:00:{len(server.calls) % 60:02}Z")
        return None

    server.hooks.append(add_times)
    sick: Object = A | {"taints": [{"key": "sick", "effect": "NoSchedule"}]}
    await publish(publisher, p=Pool((Slice((sick,)),)))
    first = server.all(SLICES)[0]["spec"]["devices"][0]["taints"]
    await publish(publisher, p=Pool((Slice((sick, B)),)))
    assert found(server) == [["a", "b"]]
    assert server.all(SLICES)[0]["spec"]["devices"][0]["taints"] == first
    assert writes(server) == ["POST", "PUT"]


async def test_a_write_that_meets_a_newer_version_is_tried_again(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=TWO)
    server.refuse("PUT", "resourceslices", Refusal(409, "Conflict"))
    await publish(publisher, p=Pool((Slice((A,)), Slice((C,)))))
    assert found(server) == [["a"], ["c"]]


async def test_a_create_whose_answer_is_lost_does_not_leave_a_double(
    server: FakeApiServer, publisher: Publisher
) -> None:
    async def create_and_fail(call: Call) -> None:
        await server.store.create(call.place, call.body)

    done: list[asyncio.Task[None]] = []

    def lose(call: Call) -> Refusal | None:
        if call.method == "POST" and not done:
            done.append(asyncio.get_running_loop().create_task(create_and_fail(call)))
            return Refusal(504, "Timeout")
        return None

    server.hooks.append(lose)
    await publish(publisher, p=TWO)
    await until(lambda: found(server) == [["a"], ["b"]] and len(generations(server)) == 1)


async def test_a_hundred_and_twenty_nine_devices_are_published(server: FakeApiServer, publisher: Publisher) -> None:
    await publish(publisher, p=Pool.of([{"name": f"gpu-{number}"} for number in range(129)]))
    assert [len(names) for names in found(server)] == [128, 1]


@pytest.mark.parametrize("pool", [Pool((Slice((A, B)), Slice((A,)))), Pool((Slice(({"name": "x"},) * 129),))])
async def test_what_can_never_be_is_refused_at_once(publisher: Publisher, pool: Pool) -> None:
    with pytest.raises(ValueError, match="pool p"):
        publisher.publish({"p": pool})


# What it sees of the slices


def item(uid: str, version: int) -> Object:
    return {"metadata": {"uid": uid, "resourceVersion": str(version)}}


def test_an_own_write_is_believed_until_the_watch_is_as_far_or_has_had_its_time() -> None:
    watched: dict[str, Object] = {}
    now = [0.0]
    sight = Sight(lambda: watched, clock=lambda: now[0])
    sight.wrote(item("a", 5))
    assert sight.slices() == {"a": item("a", 5)}
    assert sight.settles_in_s == LASTING_S
    now[0] = LASTING_S + 1
    assert sight.slices() == {}, "it came and went while the watch was away"
    assert sight.settles_in_s is None
