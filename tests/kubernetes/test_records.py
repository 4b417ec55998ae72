"""Records come back from an object as they were put in, in the fewest words, and within its bounds."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from offices import lease, request
from timeslice_api.errors import ConfigError
from timeslice_orchestrator.core.model import CounterRecord, DrainRecord, MemberKey, QuarantineRecord, Record
from timeslice_orchestrator.kubernetes.merge_patch import merge_patch
from timeslice_orchestrator.kubernetes.records import MAX_BYTES, GroupRecords, decoded
from timeslice_orchestrator.kubernetes.takeover import reconciled

EVERY: list[Record] = [
    request("r2", "job-b", "g1", ticket=3, holder="host:12 rank 0"),
    lease("r1", "job-a", "g1", "g2", devices=("GPU-0", "GPU-1"), token=7),
    DrainRecord("g1"),
    QuarantineRecord(MemberKey("job-c", "g1"), "restore failed: CUDA_ERROR_UNKNOWN"),
]
COUNTERS = CounterRecord(token=7, ticket=3)


def kept(*records: Record) -> GroupRecords:
    made = GroupRecords()
    for record in records:
        made.save(record)
    return made


def written_bytes(records: GroupRecords) -> int:
    return len(json.dumps(records.document(1, COUNTERS), separators=(",", ":")))


@pytest.mark.parametrize("record", EVERY, ids=lambda record: type(record).__name__)
def test_each_kind_of_record_comes_back_as_it_was_saved(record: Record) -> None:
    document = json.loads(json.dumps(kept(record).document(5, COUNTERS)))
    assert decoded("g1", document) == [record, COUNTERS]


def test_what_was_dropped_leaves_nothing_behind() -> None:
    records = kept(*EVERY)
    for record in EVERY:
        records.drop(record)
    assert records.size == 0
    assert records.document(5, COUNTERS) == GroupRecords().document(5, COUNTERS)


def test_ranks_of_a_job_that_hold_the_same_devices_name_them_once() -> None:
    devices = tuple(f"GPU-{number:036d}" for number in range(256))
    one = kept(lease("r-0", "job-a", devices=devices))
    all_ranks = kept(*(lease(f"r-{rank}", "job-a", devices=devices) for rank in range(256)))
    assert all_ranks.size < one.size + 255 * 200
    assert len(decoded("g1", all_ranks.document(1, COUNTERS))) == 257


def test_two_thousand_waiting_requests_fit_and_so_do_the_leases_that_they_become() -> None:
    records = GroupRecords()
    for number in range(2_000):
        asked = request(
            f"{number:032x}", f"job-{number % 10}", "trainer-group", ticket=number, holder="node-17:1234 rank 5"
        )
        assert records.has_room_for(asked)
        records.save(asked)
    for number in range(2_000):
        records.drop(request(f"{number:032x}"))
        records.save(lease(f"{number:032x}", f"job-{number % 10}", "trainer-group"))
    assert records.size < MAX_BYTES
    assert written_bytes(records) < MAX_BYTES


def test_long_requests_fill_the_object_sooner_and_one_that_waits_may_ask_again() -> None:
    records = GroupRecords()
    number = 0
    while records.has_room_for(asked := request(f"{number:0128d}", "j" * 63, ticket=number, holder="h" * 253)):
        records.save(asked)
        number += 1
    assert 1_000 < number < 2_000
    assert written_bytes(records) < MAX_BYTES
    assert records.has_room_for(request(f"{0:0128d}"))


def test_records_of_a_newer_version_are_refused() -> None:
    with pytest.raises(ConfigError, match="version 99"):
        decoded("g1", {"version": 99})


@pytest.mark.parametrize("document", [{"requests": {"r1": {}}}, {"leases": []}, {"token": "high"}, {"requests": 5}])
def test_records_that_make_no_sense_are_an_error(document: dict[str, object]) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        decoded("g1", document)


_values = st.recursive(
    st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=12,
)
_objects = st.dictionaries(st.sampled_from("abc"), _values, max_size=3)


def patched(target: object, patch: object) -> object:
    """RFC 7386, as it has it."""
    if not isinstance(patch, dict):
        return patch
    made = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = patched(made.get(key), value)
    return made


@given(_objects, _objects)
def test_a_merge_patch_makes_the_new_object_of_the_old_one(old: dict[str, object], new: dict[str, object]) -> None:
    patch = merge_patch(old, new)
    assert patched(old, patch) == new
    assert bool(patch) == (old != new)


def test_of_two_leases_of_different_jobs_on_a_device_the_later_one_is_right() -> None:
    ended = lease("r1", "job-a", "g1", "g2", devices=("d1", "d2"), token=4)
    granted = lease("r2", "job-b", "g2", devices=("d2",), token=5)
    assert reconciled([ended, CounterRecord(4, 4), granted, CounterRecord(5, 3)]) == [granted, CounterRecord(5, 4)]


def test_leases_of_one_job_on_a_device_all_stay() -> None:
    ranks = [lease(f"r{rank}", "job-a", token=rank) for rank in (1, 2, 3)]
    assert reconciled(ranks) == [*ranks, CounterRecord()]


def test_a_chain_of_ended_leases_leaves_the_last_one_of_each_device() -> None:
    first = lease("r1", "job-a", "g1", "g2", devices=("d1", "d2"), token=1)
    second = lease("r2", "job-b", "g2", "g3", devices=("d2", "d3"), token=2)
    third = lease("r3", "job-c", "g3", devices=("d3",), token=3)
    assert reconciled([third, first, second]) == [third, CounterRecord()]


def test_a_request_that_was_granted_does_not_wait_as_well() -> None:
    assert reconciled([request("r1"), lease("r1", "job-b")]) == [lease("r1", "job-b"), CounterRecord()]
