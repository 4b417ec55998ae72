from __future__ import annotations

import threading
import time

import grpc
import pytest
from fake_orchestrator import FakeOrchestrator
from patience import eventually, in_thread
from timeslice import AcquireTimeout, NotHolder, OrchestratorClient, WaitStatus
from timeslice_api.errors import GroupNotFound, QueueFull, RequestEnded, WouldDeadlock


def test_the_two_call_form_holds_between_the_calls(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    lease = client.acquire(group_id="g")
    assert fake.holders == ["job-a"]
    assert (lease.held, lease.lease_id, lease.token, lease.restored) == (True, "lease-1", 1, True)
    client.yield_(group_id="g")
    assert fake.holders == []
    assert not lease.held


def test_a_lease_is_a_context_manager(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.acquire() as lease:
        assert fake.holders == ["job-a"]
    assert fake.holders == []
    lease.yield_()  # harmless
    assert len(fake.methods("Yield")) == 1


def test_nested_use_is_counted_without_a_call(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.on_accelerators("g"):
        with client.on_accelerators("g") as inner:
            assert inner.waited_s == 0
        assert fake.holders == ["job-a"]
        assert fake.methods("Yield") == []
    assert fake.holders == []
    assert len(fake.methods("Acquire")) == len(fake.methods("Yield")) == 1


def test_several_groups_are_asked_for_in_one_call(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.on_accelerators(["t", "s", "t"]) as lease:
        assert lease.group_ids == ("s", "t")
        with client.on_accelerators("t"):  # held already
            pass
    assert [list(request.group_ids) for request in fake.methods("Acquire")] == [["s", "t"]]


def test_a_nested_other_group_goes_to_the_orchestrator(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.on_accelerators("t"):
        fake.faults["Acquire"].append(WouldDeadlock("job-a waits for job-b waits for job-a"))
        with pytest.raises(WouldDeadlock, match="job-b"), client.on_accelerators("s"):
            pytest.fail("entered")
    assert [request.group_id for request in fake.methods("Acquire")] == ["t", "s"]
    assert fake.methods("Withdraw") == []  # a refused request is not in the queue


def test_a_yield_without_an_acquire_is_refused_at_once(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with pytest.raises(NotHolder, match="does not hold g"):
        client.yield_("g")
    assert fake.calls == []


def test_the_orchestrators_refusal_has_its_type_and_hint(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    fake.faults["Acquire"].append(GroupNotFound("no group 'x'", group_id="x"))
    with pytest.raises(GroupNotFound, match="timeslice status") as caught:
        client.acquire("x")
    assert caught.value.group_id == "x"
    assert not caught.value.retryable


@pytest.mark.parametrize(
    "fault",
    [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN, QueueFull("20000 wait")],
    ids=["unavailable", "cancelled", "unknown", "queue-full"],
)
def test_a_passing_failure_is_repeated_with_the_same_request_id(
    client: OrchestratorClient, fake: FakeOrchestrator, fault: grpc.StatusCode
) -> None:
    fake.faults["Acquire"].extend([fault, fault])
    client.acquire()
    assert len({request.request_id for request in fake.methods("Acquire")}) == 1
    assert len(fake.methods("Acquire")) == 3


def test_a_grant_whose_reply_was_lost_is_found_again(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    fake.lose_replies = 1
    lease = client.acquire()
    assert lease.lease_id == "lease-1"
    assert fake.holders == ["job-a"]


def test_a_grant_that_ran_out_unheard_is_asked_for_anew(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    fake.faults["Acquire"].append(RequestEnded("its lease ran out"))
    client.acquire()
    first, second = fake.methods("Acquire")
    assert first.request_id != second.request_id


def test_a_timeout_leaves_no_ghost_in_the_queue(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with other.on_accelerators():
        began = time.monotonic()
        with pytest.raises(AcquireTimeout, match=r"g was not granted to job-a within 0\.2 s") as caught:
            client.acquire(timeout=0.2)
        assert 0.15 < time.monotonic() - began < 2
        assert isinstance(caught.value, TimeoutError)
        assert fake.waiters == []
    assert fake.holders == []


def test_a_timeout_of_zero_takes_only_what_is_free(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with client.acquire(timeout=0):
        assert fake.holders == ["job-a"]
        with pytest.raises(AcquireTimeout):
            other.acquire(timeout=0)
        assert fake.waiters == []


def test_the_timeout_holds_when_nobody_answers(fake: FakeOrchestrator) -> None:
    fake.stop()
    with OrchestratorClient(fake.address, job_id="job-a") as client, pytest.raises(AcquireTimeout, match="no answer"):
        client.acquire("g", timeout=0.5)


def test_a_waiter_is_told_who_holds_and_where_it_stands(
    fake: FakeOrchestrator, other: OrchestratorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timeslice.acquisition.SLICES_S", (0.05,))
    seen: list[WaitStatus] = []
    with (
        OrchestratorClient(fake.address, job_id="job-a", on_wait=seen.append) as client,
        other.on_accelerators(),
        pytest.raises(AcquireTimeout),
    ):
        client.acquire("g", timeout=0.2)
    assert (seen[0].holder_job_id, seen[0].position, seen[0].group_ids) == ("job-b", 1, ("g",))


def test_an_error_of_on_wait_ends_the_acquire_and_leaves_no_ghost(
    fake: FakeOrchestrator, other: OrchestratorClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timeslice.acquisition.SLICES_S", (0.05,))

    def refuse(status: WaitStatus) -> None:
        raise ZeroDivisionError

    with OrchestratorClient(fake.address, job_id="job-a", on_wait=refuse) as client, other.on_accelerators():
        with pytest.raises(ZeroDivisionError):
            client.acquire("g")
        assert fake.waiters == []


def test_a_second_threads_acquire_returns_while_the_first_holds(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    entered, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with client.on_accelerators():
            entered.set()
            leave.wait(5)

    first = in_thread(hold)
    assert entered.wait(5)
    with client.on_accelerators():
        leave.set()
        first.join(5)
        assert fake.holders == ["job-a"]  # the last one frees it
    assert fake.holders == []


def test_threads_that_race_for_a_group_hold_it_together(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    together = threading.Barrier(4)

    def hold() -> None:
        with client.on_accelerators():
            together.wait(5)

    threads = [in_thread(hold) for _ in range(4)]
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    eventually(lambda: fake.holders == [])
    assert not together.broken


def test_the_holder_says_who_asks(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.on_accelerators():
        pass
    assert ":" in fake.methods("Acquire")[0].holder
