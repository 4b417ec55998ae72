"""The decisions of an acquire on a fake clock."""

from __future__ import annotations

from typing import Any, cast

import grpc
import pytest
from timeslice.acquisition import Acquisition, Want
from timeslice.waiting import ProgressLine, WaitStatus
from timeslice_api import status
from timeslice_api.errors import AcquireTimeout, JobNotAdmitted
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import types_pb2


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Failure(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode, trailer: Any = ()) -> None:
        self._code, self._trailer = code, trailer

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "details"

    def trailing_metadata(self) -> Any:
        return self._trailer


def made(clock: Clock, timeout: float | None = None, **options: Any) -> Acquisition:
    return Acquisition(Want("job-a", ("g",), timeout), cast(Any, object), clock=clock, **options)


def still_waiting() -> pb.AcquireResponse:
    return pb.AcquireResponse(waiting=pb.Waiting(position=1, holder_job_id="job-b", held_s=30, reason="held by job-b"))


def test_the_waits_of_one_call_grow_and_stay_below_the_servers_limit() -> None:
    clock = Clock()
    acquisition = made(clock)
    waits = []
    for _ in range(5):
        call = acquisition.next_call()
        waits.append(call.request.wait_s)
        assert call.timeout > call.request.wait_s
        acquisition.answered(still_waiting())
    assert waits == [2, 5, 8, 8, 8]


def test_the_last_wait_ends_with_the_callers_time() -> None:
    clock = Clock()
    acquisition = made(clock, timeout=3)
    assert acquisition.next_call().request.wait_s == 2
    clock.now += 2
    acquisition.answered(still_waiting())
    last = acquisition.next_call()
    assert (last.request.wait_s, last.timeout) == (1, 2)
    clock.now += 1
    acquisition.answered(still_waiting())
    with pytest.raises(AcquireTimeout, match="within 3 s"):
        acquisition.next_call()


def test_a_timeout_says_who_holds_and_the_place_or_that_nobody_answers() -> None:
    clock = Clock()
    acquisition = made(clock, timeout=3)
    acquisition.next_call()
    acquisition.answered(still_waiting())
    clock.now += 3
    with pytest.raises(AcquireTimeout, match=r"within 3 s: held by job-b for 30 s, position 1$"):
        acquisition.next_call()
    acquisition.failed(Failure(grpc.StatusCode.UNAVAILABLE))
    with pytest.raises(AcquireTimeout, match=r"within 3 s: no answer: .*is it running"):
        acquisition.next_call()


def test_a_grant_that_was_heard_when_its_lease_may_be_over_is_asked_for_again() -> None:
    clock = Clock()
    acquisition = made(clock)
    granted = pb.AcquireResponse(lease=types_pb2.Lease(lease_id="lease-1", ttl_s=30))
    first = acquisition.next_call()
    clock.now += 31
    assert acquisition.answered(granted) is None
    again = acquisition.next_call()
    assert again.request.request_id == first.request.request_id
    clock.now += 29
    grant = acquisition.answered(granted)
    assert grant is not None
    assert grant.lease_id == "lease-1"


def test_pauses_after_failures_double_from_a_tenth_to_two_seconds() -> None:
    clock = Clock()
    acquisition = made(clock)
    pauses = [acquisition.failed(Failure(grpc.StatusCode.UNAVAILABLE)) for _ in range(8)]
    for pause, longest in zip(pauses, [0.1, 0.2, 0.4, 0.8, 1.6, 2, 2, 2], strict=True):
        assert longest / 2 <= pause <= longest
    acquisition.answered(still_waiting())
    assert acquisition.failed(Failure(grpc.StatusCode.UNAVAILABLE)) <= 0.1


def test_a_pause_never_outlasts_the_callers_time() -> None:
    clock = Clock()
    acquisition = made(clock, timeout=0.01)
    acquisition.next_call()
    assert acquisition.failed(Failure(grpc.StatusCode.UNAVAILABLE)) <= 0.011


def test_a_refusal_ends_the_request_so_that_nothing_has_to_be_withdrawn() -> None:
    acquisition = made(Clock())
    acquisition.next_call()
    assert acquisition.may_be_queued
    code, _, trailer = status.of(JobNotAdmitted("job-a is not on the list", group_id="g"))
    with pytest.raises(JobNotAdmitted):
        acquisition.failed(Failure(code, trailer))
    assert not acquisition.may_be_queued


def test_the_first_call_is_made_however_short_the_time_is() -> None:
    assert made(Clock(), timeout=0).next_call().request.wait_s == 0


def test_a_waiting_callers_line_says_who_holds_since_when_and_its_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", logger="timeslice")
    clock = Clock()
    acquisition = made(clock)
    for _ in range(6):
        acquisition.next_call()
        clock.now += 4
        acquisition.answered(still_waiting())
    assert [record.message for record in caplog.records] == [
        "waiting 8 s for g: held by job-b for 30 s, position 1",
        "waiting 16 s for g: held by job-b for 30 s, position 1",
        "waiting 24 s for g: held by job-b for 30 s, position 1",
    ]


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (
            WaitStatus(("t", "s"), 12.4, 2, "job-b", 30.2, "node-2 is not connected"),
            "waiting 12 s for t and s: held by job-b for 30 s, position 2 (node-2 is not connected)",
        ),
        (WaitStatus(("t",), 5, reason="no answer: refused"), "waiting 5 s for t: no answer: refused"),
        (WaitStatus(("t",), 5), "waiting 5 s for t: no answer yet"),
    ],
    ids=["all", "failure", "nothing"],
)
def test_what_a_status_reads_like(status: WaitStatus, text: str) -> None:
    assert str(status) == text


def test_the_line_goes_to_a_terminal_when_the_log_is_not_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ProgressLine()
    line.show(WaitStatus(("t",), 6))
    assert capsys.readouterr().err == ""  # no terminal
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    line.show(WaitStatus(("t",), 10))
    line.show(WaitStatus(("t",), 20, 1, "job-b", 3))
    assert capsys.readouterr().err == "timeslice: waiting 20 s for t: held by job-b for 3 s, position 1\n"
