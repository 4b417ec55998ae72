"""Records in the status of TimesliceGroups: compare and swap, a later leader, gone groups, an API server in trouble."""

from __future__ import annotations

import asyncio
import logging

import pytest
from dra_kubeletplugin.apiserver import ApiServer
from fake_api_server import Call, FakeApiServer, Refusal
from offices import lease, make_groups, opened, patches, request, status_of
from timeslice_api.errors import ConfigError, QueueFull, StoreFailed
from timeslice_orchestrator.core.events import AcquireRequested
from timeslice_orchestrator.core.model import (
    CounterRecord,
    DrainRecord,
    LeaseRecord,
    MemberKey,
    QuarantineRecord,
    RequestRecord,
)
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.status_store import StatusStore
from timeslice_orchestrator.store import NodeRecord, StoredRecord


async def written(store: StatusStore, saves: list[StoredRecord], drops: list[StoredRecord] | None = None) -> None:
    answer = store.write(saves, drops or [])
    assert answer is not None
    await answer


def alike(records: list[StoredRecord]) -> list[StoredRecord]:
    return sorted(records, key=repr)


async def test_a_successor_finds_what_was_written(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    records: list[StoredRecord] = [
        lease("r1", "job-a", "g1", "g2", devices=("d1", "d2"), token=7),
        request("r2", "job-b", "g2", ticket=9, holder="host:12"),
        DrainRecord("g2"),
        QuarantineRecord(MemberKey("job-c", "g1"), "it failed"),
        CounterRecord(7, 9),
        NodeRecord("n1", ("d1", "d2"), (("g1", ("d1",)), ("g2", ("d2",)))),
    ]
    await written(await opened(api, 1), records)
    successor = await opened(api, 2)
    assert alike(successor.records) == alike(records)
    assert successor.epoch == 2


async def test_a_batch_is_one_patch_for_each_group_that_it_touches(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2", "g3")
    store = await opened(api, 1)
    server.calls.clear()
    await written(store, [request("r1"), request("r2"), request("r3", "job-b", "g3"), CounterRecord(0, 3)])
    assert sorted(patches(server)) == ["g1", "g3"]
    assert len(server.calls) == 2
    assert status_of(server, "g3")["records"]["ticket"] == 3


async def test_a_grant_is_one_write_of_one_object_however_many_groups_it_covers(
    server: FakeApiServer, api: ApiServer
) -> None:
    await make_groups(server, "g1", "g2")
    store = await opened(api, 1)
    await written(store, [request("r1", "job-a", "g2", "g1")])
    server.calls.clear()
    await written(store, [lease("r1", "job-a", "g2", "g1", devices=("d1", "d2"))], [request("r1", "job-a", "g2", "g1")])
    (call,) = server.calls
    assert call.place.name == "g1"
    assert call.body["status"]["records"]["requests"] == {"r1": None}


async def test_nothing_is_sent_when_only_counters_have_risen(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    assert store.write([CounterRecord(41, 0)]) is None
    await written(store, [request("r1")])
    assert status_of(server, "g1")["records"]["token"] == 41


async def test_a_change_by_somebody_else_is_read_and_kept(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    await api.patch(GROUPS, "g1", {"status": {"jobs": ["job-a"]}}, subresource="status")
    await written(store, [request("r1")])
    status = status_of(server, "g1")
    assert (status["jobs"], list(status["records"]["requests"])) == (["job-a"], ["r1"])
    assert not store.deposed.done()


async def test_records_that_somebody_meddled_with_are_put_right(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    await written(store, [request("r1")])
    meddled = {"status": {"records": {"requests": {"r1": None, "r9": {"job": "x"}}}}}
    await api.patch(GROUPS, "g1", meddled, subresource="status")
    await written(store, [request("r2")])
    assert sorted(status_of(server, "g1")["records"]["requests"]) == ["r1", "r2"]


async def test_a_former_leader_writes_to_no_group_any_more(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    former = await opened(api, 1)
    await written(former, [request("r1")])
    successor = await opened(api, 2)
    before = status_of(server, "g2")
    for group in ("g1", "g2"):  # the successor has not touched g2 but for its epoch
        with pytest.raises(StoreFailed, match="leads no longer"):
            await written(former, [lease("r9", "job-z", group)])
    assert "epoch 2" in former.deposed.result()
    assert status_of(server, "g2") == before
    await written(successor, [request("r2")])
    assert sorted(status_of(server, "g1")["records"]["requests"]) == ["r1", "r2"]


async def test_a_write_of_the_former_leader_that_comes_in_time_is_found_by_its_successor(
    server: FakeApiServer, api: ApiServer
) -> None:
    await make_groups(server, "g1")
    former = await opened(api, 1)
    inserted: list[asyncio.Task[None]] = []

    def meanwhile(call: Call) -> Refusal | None:
        if call.method == "PATCH" and not inserted:  # between the successor's list and its first patch
            inserted.append(asyncio.create_task(written(former, [lease("r1", "job-a")])))
            return Refusal(409, "Conflict")
        return None

    server.hooks.append(meanwhile)
    successor = await opened(api, 2)
    outcome = (await asyncio.gather(*inserted, return_exceptions=True))[0]
    found = [record for record in successor.records if isinstance(record, LeaseRecord)]
    # whichever came first at the API server: it is known to both, or to neither
    assert (outcome is None) == bool(found)
    assert outcome is None or isinstance(outcome, StoreFailed)


async def test_the_epoch_is_above_that_of_records_that_outlived_the_lease(
    server: FakeApiServer, api: ApiServer
) -> None:
    await make_groups(server, "g1")
    await opened(api, 41)
    assert (await opened(api, 1)).epoch == 42


async def test_an_api_server_that_fails_has_all_of_it_written_again(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    store = await opened(api, 1)
    await written(store, [request("r0", "job-b", "g2")])
    server.refuse("PATCH", "timeslicegroups", Refusal(503, "ServiceUnavailable"), subresource="status", times=2)
    batch: tuple[list[StoredRecord], list[StoredRecord]] = ([request("r1")], [request("r0", "job-b", "g2")])
    with pytest.raises(StoreFailed, match="cannot write the status of group g") as caught:
        await written(store, *batch)
    assert "timeslicegroups" in caught.value.hint
    assert list(status_of(server, "g2")["records"]["requests"]) == ["r0"]
    await written(store, *batch)
    assert list(status_of(server, "g1")["records"]["requests"]) == ["r1"]
    assert status_of(server, "g2")["records"]["requests"] == {}


async def test_an_answer_that_got_lost_does_no_harm(server: FakeApiServer) -> None:
    await make_groups(server, "g1")
    async with server.connect(timeout_s=0.2) as api:
        store = await opened(api, 1)
        server.pause()
        with pytest.raises(StoreFailed, match="no answer"):
            await written(store, [request("r1")])
        server.go_on()
        await written(store, [request("r1"), lease("r2", "job-a")])
    records = status_of(server, "g1")["records"]
    assert (list(records["requests"]), list(records["leases"])) == (["r1"], ["lease-r2"])


async def test_a_group_that_is_gone_keeps_nothing_and_holds_nobody_up(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    store = await opened(api, 1)
    await server.remove(GROUPS, "g1")
    await written(store, [lease("r1", "job-a", "g1"), request("r2", "job-b", "g2")])
    assert list(status_of(server, "g2")["records"]["requests"]) == ["r2"]


async def test_what_a_gone_group_kept_for_others_moves_there(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    store = await opened(api, 1)
    shared = lease("r1", "job-a", "g1", "g2", devices=("d1", "d2"))
    await written(store, [shared, lease("r2", "job-a", "g1")])
    await server.remove(GROUPS, "g1")
    store.groups_are(["g2"])
    await written(store, [request("r3", "job-b", "g2")])
    assert list(status_of(server, "g2")["records"]["leases"]) == ["lease-r1"]
    await written(store, [], [shared])
    assert status_of(server, "g2")["records"]["leases"] == {}


async def test_a_group_that_comes_back_by_the_same_name_keeps_what_still_holds(
    server: FakeApiServer, api: ApiServer
) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    await written(store, [lease("r1", "job-a", "g1"), NodeRecord("n1", ("d1",), (("g1", ("d1",)),))])
    await server.remove(GROUPS, "g1")
    store.groups_are([])
    await make_groups(server, "g1")
    store.groups_are(["g1"])
    await written(store, [request("r2")])
    status = status_of(server, "g1")
    assert list(status["records"]["leases"]) == ["lease-r1"]
    assert status["devices"] == [{"node": "n1", "device": "d1"}]


async def test_a_group_that_is_made_later_is_written_to_when_it_has_something_to_keep(
    server: FakeApiServer, api: ApiServer
) -> None:
    store = await opened(api, 3)
    await make_groups(server, "g1")
    store.groups_are(["g1"])
    await written(store, [request("r1")])
    assert status_of(server, "g1")["records"]["epoch"] == 3


async def test_devices_of_a_group_follow_what_nodes_declare(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    store = await opened(api, 1)
    await written(store, [NodeRecord("n1", ("d1", "d2"), (("g1", ("d1", "d2")),))])
    await written(store, [NodeRecord("n1", ("d1", "d2"), (("g1", ("d2",)), ("g2", ("d1",))))])
    assert status_of(server, "g1")["devices"] == [{"node": "n1", "device": "d2"}]
    assert status_of(server, "g2")["deviceCount"] == 1
    assert store.write([NodeRecord("n1", ("d1", "d2", "d3"), (("g1", ("d2",)), ("g2", ("d1",))))]) is None


async def test_records_that_nobody_can_read_are_told_and_replaced(
    server: FakeApiServer, api: ApiServer, caplog: pytest.LogCaptureFixture
) -> None:
    await make_groups(server, "g1", "g2")
    await written(await opened(api, 1), [request("r2", "job-b", "g2")])
    await api.patch(GROUPS, "g1", {"status": {"records": {"requests": {"r1": "what"}}}}, subresource="status")
    with caplog.at_level(logging.ERROR):
        store = await opened(api, 2)
    assert [record for record in store.records if isinstance(record, RequestRecord)] == [request("r2", "job-b", "g2")]
    assert "group g1: its records make no sense" in caplog.text
    assert status_of(server, "g1")["records"]["requests"] == {}


async def test_records_of_a_newer_version_are_left_alone(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    await api.patch(GROUPS, "g1", {"status": {"records": {"version": 99, "magic": 1}}}, subresource="status")
    with pytest.raises(ConfigError, match="version 99"):
        await opened(api, 1)
    assert status_of(server, "g1")["records"]["magic"] == 1


async def test_a_definition_that_drops_the_records_is_told(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")

    def prune(call: Call) -> None:
        if call.method == "PATCH":
            call.body["status"].pop("records", None)

    server.hooks.append(prune)
    with pytest.raises(StoreFailed, match="does not keep") as caught:
        await opened(api, 1)
    assert "CustomResourceDefinition" in caught.value.hint


async def test_a_half_written_batch_is_mended_by_the_successor(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    former = await opened(api, 1)
    ended = lease("r1", "job-a", "g1", "g2", devices=("d1", "d2"), token=1)
    await written(former, [ended, request("r2", "job-b", "g2", ticket=2)])

    def dies_before_g1(call: Call) -> Refusal | None:
        return Refusal(503, "Dead") if call.method == "PATCH" and call.place.name == "g1" else None

    server.hooks.append(dies_before_g1)
    granted = lease("r2", "job-b", "g2", devices=("d2",), token=2)
    with pytest.raises(StoreFailed):
        await written(former, [granted], [ended, request("r2", "job-b", "g2", ticket=2)])
    server.hooks.clear()
    successor = await opened(api, 2)
    assert [record for record in successor.records if isinstance(record, LeaseRecord)] == [granted]
    assert status_of(server, "g1")["records"]["leases"] == {}  # nor does a third one find it


async def test_a_full_object_refuses_a_request_by_name(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    await written(store, [request(f"{n:0128d}", "job-b", ticket=n, holder="h" * 253) for n in range(1, 1_000)])
    await written(store, [request(f"{n:0128d}", "j" * 63, ticket=n, holder="h" * 253) for n in range(1_000, 2_000)])
    with pytest.raises(QueueFull, match="group g1 has") as caught:
        store.check_room(AcquireRequested("x" * 128, "job-b", ("g1",), "h" * 253))
    assert caught.value.retryable
    store.check_room(AcquireRequested(f"{1:0128d}", "job-b", ("g1",)))
