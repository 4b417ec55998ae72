from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from dra_kubeletplugin.apiserver import LEASES, ApiServer, Election, NotLeadingError
from fake_api_server import Call, FakeApiServer, Refusal

TIMES = {"lease_s": 3.0, "renew_s": 2.0, "retry_s": 0.1}  # long against the stalls of a busy machine
SHORT = {"lease_s": 1.5, "renew_s": 0.5}


def candidate(api: ApiServer, name: str, **more: Any) -> Election:
    return Election(api, namespace="ns", name="leader", identity=name, **(TIMES | more))


def lease(server: FakeApiServer) -> dict[str, Any]:
    found = server.one(LEASES, "leader", namespace="ns")
    assert found
    return found


async def test_the_first_candidate_leads_at_once_and_is_named_in_the_lease(
    server: FakeApiServer, api: ApiServer
) -> None:
    election = candidate(api, "pod-a")
    async with await election.lead() as leadership:
        assert leadership.held
        assert leadership.epoch == 1
        assert election.identity.startswith("pod-a_")
        assert lease(server)["spec"]["holderIdentity"] == election.identity


async def test_the_second_waits_while_the_first_renews(server: FakeApiServer, api: ApiServer) -> None:
    async with await candidate(api, "a").lead() as first:
        second = asyncio.create_task(candidate(api, "b").lead())
        await asyncio.sleep(TIMES["lease_s"] + 0.5)
        assert first.held
        assert not second.done()
        second.cancel()


async def test_leaving_hands_over_at_once_with_the_next_epoch(server: FakeApiServer, api: ApiServer) -> None:
    async with await candidate(api, "a").lead() as first:
        waiting = asyncio.create_task(candidate(api, "b").lead())
        await asyncio.sleep(0.2)
    assert not first.held
    async with asyncio.timeout(TIMES["lease_s"] - 0.5), await waiting as second:
        assert second.epoch == first.epoch + 1


async def test_after_a_death_another_leads_when_the_lease_is_over(server: FakeApiServer, api: ApiServer) -> None:
    first = await candidate(api, "a", **SHORT).lead()
    first._renewing.cancel()  # as if killed: no renewal, no release
    started = time.monotonic()
    async with await candidate(api, "b", **SHORT).lead() as second:
        assert time.monotonic() - started >= SHORT["lease_s"]
        assert second.epoch == first.epoch + 1


async def test_a_lease_that_is_given_up_is_taken_at_once_and_one_that_ends_to_the_moment(
    server: FakeApiServer, api: ApiServer
) -> None:
    seldom = {"lease_s": 12.0, "renew_s": 11.0, "retry_s": 10.0}  # who only looked now and then would be late
    async with await candidate(api, "a", **seldom).lead():
        following = asyncio.create_task(candidate(api, "b", **seldom).lead())
        await asyncio.sleep(0.3)
    async with asyncio.timeout(2):
        second = await following
    second._renewing.cancel()  # as if killed
    short = seldom | {"lease_s": 2.0, "renew_s": 1.9, "retry_s": 1.8}
    await server.put(LEASES, {**lease(server), "spec": {**lease(server)["spec"], "leaseDurationSeconds": 2}})
    started = time.monotonic()
    async with await candidate(api, "c", **short).lead():
        assert 2.0 <= time.monotonic() - started < 3.0


async def test_a_leader_that_cannot_renew_knows_before_others_may_lead(server: FakeApiServer, api: ApiServer) -> None:
    started = time.monotonic()
    leadership = await candidate(api, "a", **SHORT).lead()
    server.pause()
    async with asyncio.timeout(5):
        assert "no renewal" in await leadership.lost
    assert time.monotonic() - started < SHORT["lease_s"]
    assert not leadership.held
    server.go_on()
    async with leadership:
        pass


async def test_errors_of_the_server_are_ridden_out_until_the_deadline(server: FakeApiServer, api: ApiServer) -> None:
    async with await candidate(api, "a").lead() as leadership:
        server.refuse("PUT", "leases", Refusal(500, "InternalError"), times=3)
        await asyncio.sleep(1)
        assert leadership.held


async def test_a_lease_that_somebody_else_took_is_lost(server: FakeApiServer, api: ApiServer) -> None:
    leadership = await candidate(api, "a").lead()
    taken = lease(server)
    await server.put(LEASES, taken | {"spec": taken["spec"] | {"holderIdentity": "thief"}})
    async with asyncio.timeout(5):
        assert "thief" in await leadership.lost
    with pytest.raises(NotLeadingError):
        await leadership.raise_epoch(5)
    async with leadership:
        pass
    assert lease(server)["spec"]["holderIdentity"] == "thief", "leaving does not touch another's lease"


async def test_a_write_by_hand_that_leaves_the_holder_costs_nothing(server: FakeApiServer, api: ApiServer) -> None:
    async with await candidate(api, "a").lead() as leadership:
        changed = lease(server)
        await server.put(LEASES, changed | {"metadata": changed["metadata"] | {"labels": {"by": "hand"}}})
        await asyncio.sleep(0.5)
        assert leadership.held
        assert lease(server)["metadata"]["labels"] == {"by": "hand"}


async def test_a_write_that_comes_between_does_not_keep_a_leader_from_handing_over(
    server: FakeApiServer, api: ApiServer
) -> None:
    async with await candidate(api, "a", retry_s=1.9).lead():  # it does not read the lease before it leaves
        changed = lease(server)
        await server.put(LEASES, changed | {"metadata": changed["metadata"] | {"labels": {"by": "hand"}}})
    assert lease(server)["spec"]["holderIdentity"] == ""
    assert lease(server)["metadata"]["labels"] == {"by": "hand"}


async def test_a_renewal_that_has_arrived_when_its_leader_leaves_does_not_keep_it_from_handing_over(
    server: FakeApiServer, api: ApiServer
) -> None:
    arrived = asyncio.Event()

    def note(call: Call) -> Refusal | None:
        if call.method == "PUT":
            arrived.set()
        return None

    async with await candidate(api, "a").lead():
        server.hooks.append(note)
        async with asyncio.timeout(5):
            await arrived.wait()  # its answer is still on the way
    assert lease(server)["spec"]["holderIdentity"] == ""


async def test_a_lease_deleted_by_hand_is_made_again_by_its_leader(server: FakeApiServer, api: ApiServer) -> None:
    election = candidate(api, "a")
    async with await election.lead() as leadership:
        assert await leadership.raise_epoch(41) == 42
        await server.remove(LEASES, "leader", namespace="ns")
        await asyncio.sleep(0.8)
        assert leadership.held
        assert lease(server)["spec"]["holderIdentity"] == election.identity
    async with await candidate(api, "b").lead() as second:
        assert second.epoch == 43


async def test_the_epoch_rises_above_what_records_say_and_stays_for_the_next(
    server: FakeApiServer, api: ApiServer
) -> None:
    async with await candidate(api, "a", epoch_annotation="example.com/epoch").lead() as leadership:
        assert await leadership.raise_epoch(6) == 7
        assert await leadership.raise_epoch(3) == 7
        assert lease(server)["metadata"]["annotations"] == {"example.com/epoch": "7"}
        await asyncio.sleep(0.3)
        assert lease(server)["metadata"]["annotations"] == {"example.com/epoch": "7"}, "a renewal keeps it"
    async with await candidate(api, "b", epoch_annotation="example.com/epoch").lead() as second:
        assert second.epoch == 8


@pytest.mark.parametrize("noted", ["", "²", "-7", "9" * 19, "9" * 5000])
async def test_what_is_no_epoch_is_none_and_the_lease_is_led_all_the_same(
    server: FakeApiServer, api: ApiServer, noted: str
) -> None:
    async with await candidate(api, "a").lead():
        pass
    metadata = {**lease(server)["metadata"], "annotations": {"dra-kubeletplugin/epoch": noted}}
    await server.put(LEASES, {**lease(server), "metadata": metadata})
    async with await candidate(api, "b").lead() as leadership:
        assert leadership.epoch == 2


async def test_of_two_that_raise_the_epoch_at_once_the_later_does_not_lower_it(
    server: FakeApiServer, api: ApiServer
) -> None:
    async with await candidate(api, "a").lead() as leadership:
        assert await asyncio.gather(leadership.raise_epoch(40), leadership.raise_epoch(5)) == [41, 41]
        assert lease(server)["metadata"]["annotations"] == {"dra-kubeletplugin/epoch": "41"}


async def test_leadership_of_other_programs_counts_into_the_epoch(server: FakeApiServer, api: ApiServer) -> None:
    metadata = {"namespace": "ns", "name": "leader"}
    await server.put(LEASES, {"metadata": metadata, "spec": {"holderIdentity": "", "leaseTransitions": 9}})
    async with await candidate(api, "a").lead() as leadership:
        assert leadership.epoch == 10
        assert lease(server)["spec"]["leaseTransitions"] == 10


async def test_an_acquisition_whose_answer_was_lost_is_known_as_ones_own(server: FakeApiServer, api: ApiServer) -> None:
    election = candidate(api, "a")
    await server.put(
        LEASES,
        {
            "metadata": {"namespace": "ns", "name": "leader"},
            "spec": {"holderIdentity": election.identity, "leaseTransitions": 1, "leaseDurationSeconds": 15},
        },
    )
    async with asyncio.timeout(3), await election.lead() as leadership:
        assert leadership.epoch == 2


async def test_of_many_candidates_one_leads(server: FakeApiServer, api: ApiServer) -> None:
    tasks = [asyncio.create_task(candidate(api, f"c{number}").lead()) for number in range(5)]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.sleep(0.5)
    assert len(done) == 1
    for task in waiting:
        task.cancel()
    async with done.pop().result():
        pass


async def test_a_candidate_waits_for_a_server_that_is_away(server: FakeApiServer, api: ApiServer) -> None:
    await server.stop()
    waiting = asyncio.create_task(candidate(api, "a").lead())
    await asyncio.sleep(0.3)
    await server.start()
    async with asyncio.timeout(5), await waiting as leadership:
        assert leadership.held


async def test_leaving_does_not_wait_for_a_server_that_hangs(server: FakeApiServer, api: ApiServer) -> None:
    leadership = await candidate(api, "a", renew_s=5, lease_s=8).lead()
    server.pause()
    started = time.monotonic()
    async with leadership:
        pass
    assert time.monotonic() - started < 3
    server.go_on()


async def test_a_failure_of_the_renewal_itself_loses_the_lead(server: FakeApiServer, api: ApiServer) -> None:
    leadership = await candidate(api, "a").lead()

    def garble(call: Call) -> Refusal | None:
        call.body["metadata"] = {"name": "leader", "namespace": "ns"}
        call.body["spec"] = None
        return None

    server.hooks.append(garble)
    async with asyncio.timeout(5):
        assert await leadership.lost
    server.hooks.clear()
    async with leadership:
        pass


async def test_times_that_cannot_work_are_refused(api: ApiServer) -> None:
    with pytest.raises(ValueError, match="retry_s < renew_s < lease_s"):
        candidate(api, "a", renew_s=20)
