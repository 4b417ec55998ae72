"""A store that needs time: what is decided meanwhile gathers, nothing overtakes, and a failure holds all back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator

import pytest
from scripted_core import ASK, COMMAND, GRANTED, ScriptedCore
from slow_store import SlowStore
from timeslice_api.errors import QueueFull, Stopping, StoreFailed
from timeslice_orchestrator.core.effects import LeasesChecked, Save, SendCommand, YieldAccepted
from timeslice_orchestrator.core.events import AcquireRequested, LeasesRenewed, NodeLost, WaiterDetached, Yielded
from timeslice_orchestrator.core.model import CounterRecord
from timeslice_orchestrator.engine import Engine

YIELD = Yielded("l1", "job-a")
LATER_COMMAND = SendCommand("n1", 2, 2, (), 30.0)


def saved(number: int) -> Save:
    return Save(CounterRecord(number, number))


class Bench:
    def __init__(self) -> None:
        self.core = ScriptedCore()
        self.store = SlowStore()
        self.sent: list[SendCommand] = []
        self.in_office = True
        self.engine = Engine(self.core, self.store, self.sent.append, in_office=lambda: self.in_office)  # type: ignore[arg-type]

    def happens(self, *effects: object) -> None:
        """Something with these effects happens by itself."""
        self.core.on(NodeLost, *effects)  # type: ignore[arg-type]
        self.engine.post(NodeLost("n1"))

    def yields(self, *effects: object) -> asyncio.Task[YieldAccepted]:
        """A client's yield with these effects."""
        self.core.on(Yielded, YieldAccepted("l1", 1, False), *effects)  # type: ignore[arg-type]
        return asyncio.create_task(self.engine.do(YIELD, YieldAccepted))


@pytest.fixture
async def bench() -> Bench:
    return Bench()


@pytest.fixture(autouse=True)
def no_forgotten_exceptions(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert "never retrieved" not in caplog.text


async def test_nothing_is_sent_or_answered_before_the_write_has_ended(bench: Bench) -> None:
    call = bench.yields(saved(1), COMMAND)
    assert await bench.store.under_way() == [CounterRecord(1, 1)]
    await asyncio.sleep(0.01)
    assert (bench.sent, call.done()) == ([], False)
    await bench.store.land()
    assert (bench.sent, (await call).waiting) == ([COMMAND], 1)


async def test_what_comes_while_a_write_is_under_way_gathers_into_the_next_one(bench: Bench) -> None:
    bench.happens(saved(1), COMMAND)
    await bench.store.under_way()
    for number in (2, 3):
        bench.happens(saved(number))
        await asyncio.sleep(0.01)
    bench.happens(LATER_COMMAND)
    await asyncio.sleep(0.01)
    assert len(bench.store.asked) == 1
    await bench.store.land()
    assert bench.sent == [COMMAND]
    assert await bench.store.under_way(2) == [CounterRecord(3, 3)]
    await bench.store.land()
    assert bench.sent == [COMMAND, LATER_COMMAND]


async def test_an_answer_that_saves_nothing_waits_for_what_was_decided_before_it(bench: Bench) -> None:
    bench.happens(saved(1))
    await bench.store.under_way()
    call = bench.yields()
    await asyncio.sleep(0.01)
    assert not call.done()
    await bench.store.land()
    await call
    assert len(bench.store.asked) == 1  # there was nothing to write for it


async def test_renewals_are_answered_at_once_while_a_write_is_under_way(bench: Bench) -> None:
    bench.happens(saved(1))
    await bench.store.under_way()
    bench.core.on(LeasesRenewed, LeasesChecked((), ("l1",)))
    assert bench.engine.renew(LeasesRenewed("job-a", ("l1",)), LeasesChecked).wanted == ("l1",)
    await bench.store.land()


async def test_a_failed_write_holds_back_what_gathered_behind_it_too_and_keeps_the_order(bench: Bench) -> None:
    first = bench.yields(saved(1), COMMAND)
    await bench.store.under_way()
    bench.happens(saved(2), LATER_COMMAND)
    second = bench.yields()
    await asyncio.sleep(0.01)
    await bench.store.fail()
    for call in (first, second):
        with pytest.raises(StoreFailed, match="no answer") as caught:
            await call
        assert caught.value.hint == "look at the API server"
    assert bench.sent == []
    assert await bench.store.under_way(2) == [CounterRecord(2, 2)]  # by the timer, the newest of each record
    await bench.store.land()
    assert bench.sent == [COMMAND, LATER_COMMAND]


async def test_while_it_fails_calls_are_refused_before_their_step_and_do_not_hurry_the_next_try(bench: Bench) -> None:
    bench.happens(saved(1))
    await bench.store.under_way()
    await bench.store.fail()
    seen = list(bench.core.seen)
    for _ in range(20):
        with pytest.raises(StoreFailed):
            await bench.engine.do(YIELD, YieldAccepted)
    assert bench.core.seen == seen
    assert len(bench.store.asked) == 1
    await bench.store.under_way(2)
    await bench.store.land()
    await bench.yields()


async def test_a_grant_that_could_not_be_written_is_found_by_asking_again(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.engine.acquire(ASK, 5))
    await asyncio.sleep(0.01)
    bench.happens(saved(1), GRANTED)
    await bench.store.under_way()
    assert not waiting.done()
    await bench.store.fail()
    with pytest.raises(StoreFailed):
        await waiting
    await bench.store.under_way(2)
    await bench.store.land()
    bench.core.on(AcquireRequested, GRANTED)
    assert await bench.engine.acquire(ASK, 5) == GRANTED


async def test_a_grant_under_way_is_waited_for_though_the_time_of_the_call_is_over(bench: Bench) -> None:
    bench.core.on(AcquireRequested, saved(1), GRANTED)
    call = asyncio.create_task(bench.engine.acquire(ASK, 0))
    await bench.store.under_way()
    await asyncio.sleep(0.05)
    assert not call.done()
    await bench.store.land()
    assert await call == GRANTED
    assert bench.core.seen == [ASK]


async def test_a_wait_that_ends_while_a_write_is_under_way_tells_its_place_after_it(bench: Bench) -> None:
    bench.core.waits.add("r1")
    bench.happens(saved(1))
    await bench.store.under_way()
    call = asyncio.create_task(bench.engine.acquire(ASK, 0))
    await asyncio.sleep(0.01)
    assert not call.done()
    await bench.store.fail()
    with pytest.raises(StoreFailed):  # its own step was not durable either
        await call
    assert bench.core.seen[-1] == WaiterDetached("r1")


async def test_a_request_for_which_the_store_has_no_room_is_refused_before_its_step(bench: Bench) -> None:
    with pytest.raises(QueueFull):
        await bench.engine.acquire(AcquireRequested("r1", "job-a", ("g",), "x" * 101), 5)
    assert bench.core.seen == [WaiterDetached("r1")]


async def test_a_stop_waits_for_the_write_under_way_and_for_what_gathered_behind_it(bench: Bench) -> None:
    first = bench.yields(saved(1))
    await bench.store.under_way()
    second = bench.yields(saved(2))
    await asyncio.sleep(0.01)
    stopping = asyncio.create_task(bench.engine.stop())
    await asyncio.sleep(0.01)
    with pytest.raises(Stopping):
        await bench.engine.do(YIELD, YieldAccepted)
    await bench.store.land()
    assert await bench.store.under_way(2) == [CounterRecord(2, 2)]
    await bench.store.land()
    await stopping
    assert [call.result().waiting for call in (first, second)] == [1, 1]


async def test_a_stop_gives_up_on_a_store_that_does_not_answer(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    call = bench.yields(saved(1), COMMAND)
    await bench.store.under_way()
    with caplog.at_level(logging.ERROR):
        await bench.engine.stop(within_s=0.05)
    with pytest.raises(Stopping):
        await call
    assert bench.sent == []
    await asyncio.sleep(0)
    assert bench.store.cancelled
    assert "stopped with 1 records unwritten" in caplog.text


async def test_who_is_not_in_office_any_more_lets_nothing_out_though_it_is_durable(bench: Bench) -> None:
    call = bench.yields(saved(1), COMMAND)
    waiting = asyncio.create_task(bench.engine.acquire(ASK, 5))
    await bench.store.under_way()
    bench.in_office = False
    await bench.store.land()
    assert (bench.sent, call.done()) == ([], False)
    seen = list(bench.core.seen)
    with pytest.raises(Stopping, match="leads no longer"):
        bench.engine.renew(LeasesRenewed("job-a", ("l1",)), LeasesChecked)
    bench.happens(COMMAND)
    assert bench.core.seen == seen
    bench.engine.abandon()
    for ended in (call, waiting):
        with pytest.raises(Stopping):
            await ended


async def test_a_defect_of_the_store_counts_as_a_failure(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    call = bench.yields(saved(1), COMMAND)
    await bench.store.under_way()
    with caplog.at_level(logging.ERROR):
        await bench.store.land(ZeroDivisionError("oh"))
        with pytest.raises(StoreFailed, match="defect"):
            await call
    assert "Traceback" in caplog.text
    assert await bench.store.under_way(2) == [CounterRecord(1, 1)]
    await bench.store.land()
    assert bench.sent == [COMMAND]
