"""A checker that finds nothing proves nothing: logs made by hand, each with one promise broken, and whole ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from timeslice_chaos.checker import check
from timeslice_chaos.log import Event, Log, read

A, B, DEVICE = 1, 2, "GPU-1"


def gpu(at: float, pid: int, what: str, **fields: object) -> Event:
    return Event(at, pid, "gpu", what, fields)


def said(at: float, pid: int, what: str, **fields: object) -> Event:
    return Event(at, pid, "job", what, fields)


def context(at: float, pid: int) -> Event:
    return gpu(at, pid, "context", device=DEVICE)


def step(at: float, pid: int, call: str, state: str) -> list[Event]:
    return [gpu(at, pid, "begin", call=call), gpu(at + 0.1, pid, "end", call=call, state=state)]


def park(at: float, pid: int) -> list[Event]:
    return [*step(at, pid, "lock", "locked"), *step(at + 0.2, pid, "checkpoint", "checkpointed")]


def put_back(at: float, pid: int) -> list[Event]:
    return [*step(at, pid, "restore", "locked"), *step(at + 0.2, pid, "unlock", "running")]


def turn(at: float, pid: int, number: int, token: int) -> list[Event]:
    """Takes a second, writes in the middle of it."""
    lease = f"lease-{pid}-{number}"
    return [
        said(at, pid, "asks", turn=number),
        said(at + 0.1, pid, "granted", turn=number, lease=lease, token=token),
        said(at + 0.4, pid, "write", start=0),
        said(at + 0.6, pid, "written", start=0),
        said(at + 0.7, pid, "wrote", turn=number, sum=10 * number),
        said(at + 0.8, pid, "yields", turn=number, token=token),
        said(at + 0.9, pid, "yielded", turn=number),
    ]


BEGIN = [said(0.0, A, "job", job="job-a"), said(0.0, B, "job", job="job-b")]
WHOLE = [
    *BEGIN,
    *turn(1.0, A, 1, 5),
    context(1.3, A),
    *park(2.0, A),
    *turn(3.0, B, 1, 7),
    context(3.3, B),
    *park(4.0, B),
    *put_back(4.5, A),
    *turn(5.0, A, 2, 9),
    said(5.2, A, "found", turn=1, sum=10, same=True),
]


def broken(*events: Event, without: tuple[Event, ...] = ()) -> list[str]:
    """The promises that a log breaks."""
    kept = [event for event in (*WHOLE, *events) if event not in without]
    return [violation.promise for violation in check(sorted(kept, key=lambda event: event.at))]


def the(pid: int, what: str, number: int = 0) -> Event:
    return [event for event in WHOLE if (event.pid, event.what) == (pid, what)][number]


def test_a_log_in_which_all_promises_were_kept_is_clean() -> None:
    assert broken() == []


def test_a_job_that_is_unlocked_while_another_runs_is_found() -> None:
    assert broken(*put_back(3.4, A)[2:], *step(3.9, A, "lock", "locked")) == ["one job on a device"]


def test_a_lock_that_did_not_succeed_ends_nothing() -> None:
    lock, checkpoint = park(2.0, A)[1], park(2.0, A)[3]
    failed = gpu(2.1, A, "end", call="lock", state="running")
    found = broken(failed, without=(lock, checkpoint))
    assert found == ["one job on a device"]


def test_a_first_use_beside_a_job_that_runs_is_found() -> None:
    newcomer = said(0.0, 3, "job", job="job-c")
    assert broken(newcomer, context(3.5, 3), gpu(3.8, 3, "gone")) == ["one job on a device"]


def test_two_processes_of_one_job_may_run_together() -> None:
    rank = said(0.0, 3, "job", job="job-b")
    assert broken(rank, context(3.5, 3), gpu(3.8, 3, "gone")) == []


def test_a_process_that_was_killed_runs_no_more_although_the_gpu_learns_it_late() -> None:
    late = [*put_back(2.5, A), gpu(3.5, A, "gone"), Event(2.9, A, "world", "kills")]
    of_later_turns = tuple(event for event in WHOLE if event.pid == A and event.at > 4)
    assert broken(*late, without=of_later_turns) == []
    assert broken(*late[:-1], without=of_later_turns) == ["one job on a device"]


def test_writes_at_the_same_time_are_found_by_themselves() -> None:
    meeting = [said(3.41, A, "write", start=0), said(3.59, A, "written", start=0)]
    unlocked = gpu(3.4, A, "begin", call="unlock"), gpu(3.6, A, "end", call="lock", state="locked")
    assert sorted(broken(*meeting, *unlocked)) == ["one job on a device", "one job writes"]


def test_a_write_that_a_lock_holds_up_meets_nobody() -> None:
    held_up = [said(1.95, A, "write", start=0), said(5.05, A, "written", start=0)]
    assert broken(*held_up) == []


def test_a_grant_while_another_job_holds_is_found_unless_its_lease_may_have_been_lost() -> None:
    early = said(1.5, B, "granted", turn=1, lease="lease-2-1", token=7)
    without = (the(B, "granted"), the(B, "asks"))
    found = said(1.4, B, "asks", turn=1), early
    assert broken(*found, without=without) == ["leases are kept"]
    assert broken(*found, Event(1.0, 9, "world", "strikes", {"kind": "kill", "where": ""}), without=without) != []
    assert broken(*found, Event(1.0, 9, "world", "strikes", {"kind": "lost", "where": ""}), without=without) == []
    long = {"kind": "link", "where": "jobs until it is noticed mute"}
    assert broken(*found, Event(1.0, 9, "world", "strikes", long), without=without) == []
    assert broken(*found, Event(1.0, B, "world", "stops"), without=without) == []
    assert broken(*found, Event(1.0, 9, "world", "stops"), without=without) == ["leases are kept"]


@pytest.mark.parametrize("wrong", [{"sum": 11, "same": True}, {"sum": 10, "same": False}])
def test_a_byte_that_did_not_come_back_is_found(wrong: dict[str, object]) -> None:
    found = the(A, "found")
    changed = said(found.at, A, "found", turn=1, **wrong)
    assert broken(changed, without=(found,)) == ["every byte comes back"]


def test_a_token_that_falls_is_found() -> None:
    grant, end = the(B, "granted"), the(B, "yields")
    lower = [
        said(grant.at, B, "granted", turn=1, lease="lease-2-1", token=4),
        said(end.at, B, "yields", turn=1, token=4),
    ]
    assert broken(*lower, without=(grant, end)) == ["tokens rise"]


def test_a_lease_that_was_lost_and_granted_anew_within_a_turn_has_the_newer_token() -> None:
    grant = the(B, "granted")
    assert broken(said(grant.at, B, "granted", turn=1, lease="lease-2-0", token=3), without=(grant,)) == []


def test_a_lease_that_two_were_given_is_found() -> None:
    grant = the(B, "granted")
    assert "tokens rise" in broken(said(grant.at, B, "granted", turn=1, lease="lease-1-1", token=7), without=(grant,))


def test_a_token_that_two_leases_have_is_found() -> None:
    grant = the(B, "granted")
    assert broken(said(grant.at, B, "granted", turn=1, lease="lease-2-1", token=5), without=(grant,)) == ["tokens rise"]


@pytest.mark.parametrize("name", ["granted", "yielded"])
def test_an_acquire_that_does_not_end_is_found(name: str) -> None:
    assert "each acquire ends once" in broken(without=(the(A, name),))


@pytest.mark.parametrize("name", ["granted", "yielded"])
def test_an_acquire_that_ends_twice_is_found(name: str) -> None:
    again = the(A, name)
    assert "each acquire ends once" in broken(said(again.at + 0.05, A, name, **again.fields))


def test_an_acquire_may_be_cut_off_by_the_end_of_its_process_and_by_nothing_else() -> None:
    asks = said(6.5, B, "asks", turn=2)
    assert broken(asks) == ["each acquire ends once"]
    assert broken(asks, Event(6.6, B, "world", "kills")) == []


REFUSED = {"turn": 2, "error": "JobQuarantined", "text": "spoilt"}


def test_a_job_that_is_refused_is_found_unless_the_gpu_failed_it() -> None:
    asks, refused = said(6.5, B, "asks", turn=2), said(6.6, B, "refused", **REFUSED)
    struck = gpu(6.4, B, "fault", call="restore", fault={"rc": 304})
    assert broken(asks, refused) == ["no job fails"]
    assert broken(asks, refused, struck) == []
    other = said(6.6, B, "refused", **REFUSED | {"error": "NotHolder"})
    assert broken(asks, other, struck) == ["no job fails"]
    unknown = said(6.6, B, "refused", **REFUSED | {"error": "GroupNotFound"})
    lost = Event(6.2, 9, "world", "struck", {"kind": "lost"})
    assert broken(asks, unknown, lost) == ["no job fails"]


def test_a_cuda_call_that_fails_is_found_unless_the_state_was_spoilt() -> None:
    failed = said(6.6, B, "broken", text="cuMemAlloc_v2 failed with CUresult 2")
    spoilt = gpu(6.4, B, "fault", call="restore", fault={"poison": True})
    assert broken(failed) == ["no job fails"]
    assert broken(failed, spoilt) == []


def test_a_process_that_ends_by_itself_is_found() -> None:
    ended = [Event(7.0, 9, "world", "ended", {"name": "node-0", "status": status}) for status in (-9, 1, -11)]
    for event in ended:
        assert broken(event) == ["nobody crashes"]
    assert broken(ended[0], Event(6.9, 9, "world", "kills")) == []
    assert broken(ended[0], Event(6.9, 9, "node", "struck", {"action": "kill"})) == []
    assert broken(ended[1], Event(6.9, 9, "world", "kills")) == ["nobody crashes"]


def test_a_log_is_read_in_the_order_of_time_and_without_a_line_that_was_cut_off(tmp_path: Path) -> None:
    log = Log(tmp_path, "job")
    first = log.say("asks", turn=1)
    log.say("kills", pid=77)
    log.close()
    (tmp_path / "gpu-0.jsonl").write_text(json.dumps({"t": first + 1e-9, "pid": 5, "what": "gone"}) + '\n{"t": 12')
    events = read(tmp_path)
    assert [(event.role, event.what) for event in events] == [("job", "asks"), ("gpu", "gone"), ("job", "kills")]
    assert (events[1].pid, events[2].pid, events[0]["turn"]) == (5, 77, 1)
