from __future__ import annotations

import asyncio
import threading
import time

import grpc
import pytest
from fake_orchestrator import FakeOrchestrator
from patience import eventually
from timeslice import AsyncOrchestratorClient, LeaseLost, NotHolder, OrchestratorClient


def test_a_held_lease_is_renewed_every_third_of_its_time_to_live(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with client.on_accelerators("g") as lease:
        eventually(lambda: len(fake.methods("KeepAlive")) >= 2)
        assert list(fake.methods("KeepAlive")[0].lease_ids) == [lease.lease_id]
    sent = len(fake.methods("KeepAlive"))
    time.sleep(fake.ttl_s / 2)
    assert len(fake.methods("KeepAlive")) <= sent + 1  # one may have been under way


async def test_a_blocked_event_loop_does_not_stop_the_renewals(
    async_client: AsyncOrchestratorClient, fake: FakeOrchestrator
) -> None:
    async with async_client.on_accelerators("g"):
        time.sleep(fake.ttl_s)  # a training step that never awaits
        assert len(fake.methods("KeepAlive")) >= 2


def test_a_wanted_lease_says_so(fake: FakeOrchestrator, other: OrchestratorClient) -> None:
    heard: list[tuple[str, ...]] = []
    with OrchestratorClient(fake.address, job_id="job-a", on_wanted=heard.append) as client:
        with client.on_accelerators("g") as lease:
            assert not lease.wanted.is_set()
            waiting = threading.Thread(target=lambda: other.acquire("g"), daemon=True)
            waiting.start()
            assert lease.wanted.wait(5)
            eventually(lambda: heard == [("g",)])
        waiting.join(5)


def test_a_lost_lease_is_asked_for_again_so_that_a_blocked_body_can_go_on(
    fake: FakeOrchestrator, other: OrchestratorClient, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[tuple[str, ...]] = []
    with OrchestratorClient(fake.address, job_id="job-a", on_lost=heard.append) as client:
        with client.on_accelerators("g") as lease:
            waiting = threading.Thread(target=lambda: other.acquire("g"), daemon=True)
            waiting.start()
            eventually(lambda: fake.waiters == ["job-b"])
            fake.lose("job-a")
            assert lease.lost.wait(5)
            with pytest.raises(LeaseLost, match="the lease of g was taken away"):
                lease.check()
            eventually(lambda: fake.waiters == ["job-a"])
            waiting.join(5)
            other.yield_("g")
            eventually(lambda: lease.held)
            lease.check()
            assert lease.token == 3
            assert fake.holders == ["job-a"]
        assert fake.holders == []
        assert heard == [("g",)]
    assert "the lease of g was taken away" in caplog.text


def test_a_region_that_ends_while_its_lost_lease_is_asked_for_leaves_no_ghost(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with client.on_accelerators("g") as lease:
        waiting = threading.Thread(target=lambda: other.acquire("g"), daemon=True)
        waiting.start()
        eventually(lambda: fake.waiters == ["job-b"])
        fake.lose("job-a")
        assert lease.lost.wait(5)
        eventually(lambda: fake.waiters == ["job-a"])
    waiting.join(5)
    eventually(lambda: fake.waiters == [])
    other.yield_("g")
    assert fake.holders == []


def test_a_client_that_does_not_ask_again_raises_at_the_end_of_the_region(
    fake: FakeOrchestrator,
) -> None:
    with OrchestratorClient(fake.address, job_id="job-a", reacquire_lost=False) as client:
        with pytest.raises(LeaseLost), client.on_accelerators("g"):
            fake.lose("job-a")

        @client.on_accelerators("g")
        def failing() -> None:
            fake.lose("job-a")
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError) as caught:
            failing()
        assert "taken away" in caught.value.__notes__[0]


def test_a_loss_noticed_only_at_the_yield_is_logged(
    client: OrchestratorClient, fake: FakeOrchestrator, caplog: pytest.LogCaptureFixture
) -> None:
    with client.on_accelerators("g"):
        fake.lose("job-a")
    assert "before it was given back" in caplog.text


def test_a_yield_to_an_orchestrator_that_knows_nothing_of_the_lease_is_a_loss_and_no_error(
    client: OrchestratorClient, fake: FakeOrchestrator, caplog: pytest.LogCaptureFixture
) -> None:
    with client.on_accelerators("g"):
        fake.faults["Yield"].append(NotHolder("it has lost its state"))
    assert "before it was given back" in caplog.text


def test_a_nested_acquire_under_a_lost_lease_asks_the_orchestrator(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with client.on_accelerators("g") as outer:
        client._session.options["reacquire_lost"] = False
        fake.lose("job-a")
        assert outer.lost.wait(5)
        with client.on_accelerators("g") as inner:
            assert (inner.held, inner.token) == (True, 2)
        client._session.options["reacquire_lost"] = True


def test_a_callback_that_fails_does_not_stop_the_renewals(
    fake: FakeOrchestrator, other: OrchestratorClient, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(groups: tuple[str, ...]) -> None:
        raise ZeroDivisionError

    with OrchestratorClient(fake.address, job_id="job-a", on_wanted=fail) as client:
        with client.on_accelerators("g") as lease:
            waiting = threading.Thread(target=lambda: other.acquire("g"), daemon=True)
            waiting.start()
            assert lease.wanted.wait(5)
            sent = len(fake.methods("KeepAlive"))
            eventually(lambda: len(fake.methods("KeepAlive")) > sent)
        waiting.join(5)
    assert "a callback of the client failed" in caplog.text


def test_an_orchestrator_restarted_while_waiting_finds_the_request_at_its_place(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    other.acquire("g")
    granted = threading.Event()

    def wait() -> None:
        client.acquire("g")
        granted.set()

    threading.Thread(target=wait, daemon=True).start()
    eventually(lambda: fake.waiters == ["job-a"])
    fake.stop()
    time.sleep(0.3)
    fake.start()
    eventually(lambda: len(fake.methods("Acquire")) >= 3)
    other.yield_("g")
    assert granted.wait(5)
    assert len({request.request_id for request in fake.methods("Acquire")}) == 2  # one of each job
    client.yield_("g")


def test_an_orchestrator_restarted_while_holding_is_not_noticed_by_the_body(
    client: OrchestratorClient, fake: FakeOrchestrator, caplog: pytest.LogCaptureFixture
) -> None:
    with client.on_accelerators("g") as lease:
        fake.stop()
        eventually(lambda: "leases are not renewed" in caplog.text)
        fake.start()
        sent = len(fake.methods("KeepAlive"))
        eventually(lambda: len(fake.methods("KeepAlive")) > sent)
        assert lease.held
    assert fake.holders == []


def test_a_yield_that_finds_nobody_is_delivered_when_the_orchestrator_is_back(
    client: OrchestratorClient, fake: FakeOrchestrator, caplog: pytest.LogCaptureFixture
) -> None:
    with client.on_accelerators("g"):
        fake.stop()
    assert "is delivered later" in caplog.text
    fake.start()
    eventually(lambda: fake.holders == [])


def test_a_yield_behind_a_frozen_orchestrator_keeps_its_caller_for_two_seconds_only(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    async def freeze() -> None:
        await asyncio.sleep(8)

    with client.on_accelerators("g"):
        fake.faults["Yield"].append(freeze)
        began = time.monotonic()
    assert time.monotonic() - began < 4
    eventually(lambda: fake.holders == [])


def test_an_undelivered_yield_and_a_new_acquire_do_not_harm_each_other(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    fake.faults["Yield"].extend([grpc.StatusCode.UNAVAILABLE] * 3)
    with client.on_accelerators("g"):
        pass
    with client.on_accelerators("g") as lease:
        eventually(lambda: "lease-1" in fake.state.yielded)
        assert fake.holders == ["job-a"]
        assert lease.lease_id == "lease-2"


def test_closing_gives_back_what_is_held(fake: FakeOrchestrator) -> None:
    client = OrchestratorClient(fake.address, job_id="job-a")
    lease = client.acquire("g")
    client.close()
    client.close()
    assert fake.holders == []
    lease.yield_()  # too late, harmless
    with pytest.raises(Exception, match="this client is closed"):
        client.acquire("g")


def test_closing_without_an_orchestrator_takes_three_seconds_at_most(
    fake: FakeOrchestrator, caplog: pytest.LogCaptureFixture
) -> None:
    client = OrchestratorClient(fake.address, job_id="job-a")
    client.acquire("g")
    fake.stop()
    began = time.monotonic()
    client.close()
    assert time.monotonic() - began < 3.5
    assert "did not reach the orchestrator" in caplog.text
