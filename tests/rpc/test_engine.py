"""The engine with a core that says what the test wants: order, races, and defects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from scripted_core import ASK, COMMAND, GRANTED, ScriptedCore
from timeslice_api.errors import GroupNotFound, RequestEnded, Stopping, StoreFailed
from timeslice_orchestrator.core.effects import (
    Effect,
    LeasesChecked,
    Refused,
    Save,
    WakeAt,
    YieldAccepted,
)
from timeslice_orchestrator.core.events import (
    AcquireRequested,
    Event,
    LeasesRenewed,
    NodeLost,
    Tick,
    WaiterDetached,
    Yielded,
)
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.core.model import CounterRecord, WaitingView
from timeslice_orchestrator.engine import Engine
from timeslice_orchestrator.store import SqliteStore, Store, StoredRecord


class FailingStore:
    """A store that can be told to fail, and writes down what happened in which order."""

    def __init__(self, log: list[object]) -> None:
        self.fails = False
        self.log = log

    def check_room(self, event: AcquireRequested) -> None:
        pass

    def write(self, saves: list[StoredRecord], drops: list[StoredRecord]) -> None:
        if self.fails:
            raise StoreFailed("disk full")
        self.log.append([*saves, *drops])


class Bench:
    def __init__(self) -> None:
        self.log: list[object] = []
        self.core = ScriptedCore()
        self.store = FailingStore(self.log)
        self.engine = Engine(cast(Core, self.core), cast(Store, self.store), self.log.append)


@pytest.fixture
async def bench() -> Bench:
    return Bench()


async def test_what_a_step_saves_is_written_before_its_command_is_sent_and_its_call_answered(bench: Bench) -> None:
    bench.core.on(Yielded, YieldAccepted("l1", 1, False), Save(CounterRecord(1, 1)), COMMAND)
    call = asyncio.create_task(bench.engine.do(Yielded("l1", "job-a"), YieldAccepted))
    call.add_done_callback(lambda _: bench.log.append("answered"))
    assert (await call).waiting == 1
    await asyncio.sleep(0)
    assert bench.log == [[CounterRecord(1, 1)], COMMAND, "answered"]


async def test_steps_of_the_same_moment_share_a_write_and_the_newest_record_wins(bench: Bench) -> None:
    for number in (1, 2, 3):
        bench.core.on(NodeLost, Save(CounterRecord(number, number)))
        bench.engine.post(NodeLost("n1"))
    await asyncio.sleep(0.05)
    assert bench.log == [[CounterRecord(3, 3)]]


async def test_a_refusal_of_a_step_reaches_the_caller_and_detaches_nobody_else(bench: Bench) -> None:
    def refuse(event: Event, now: float) -> list[Effect]:
        raise GroupNotFound("no group g")

    bench.core.step = refuse  # type: ignore[method-assign]
    with pytest.raises(GroupNotFound):
        await bench.engine.do(Yielded("l1", "job-a"), YieldAccepted)


async def test_a_waiter_is_granted_by_a_later_step(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.engine.acquire(ASK, 5))
    await asyncio.sleep(0.02)
    bench.core.on(NodeLost, GRANTED)
    bench.engine.post(NodeLost("n1"))
    assert await waiting == GRANTED
    assert not any(isinstance(event, WaiterDetached) for event in bench.core.seen)


async def test_a_waiter_that_is_refused_later_gets_the_error(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.engine.acquire(ASK, 5))
    await asyncio.sleep(0.02)
    bench.core.on(NodeLost, Refused("r1", GroupNotFound("group g is gone", group_id="g")))
    bench.engine.post(NodeLost("n1"))
    with pytest.raises(GroupNotFound) as caught:
        await waiting
    assert caught.value.group_id == "g"


async def test_the_end_of_a_wait_tells_the_place_and_detaches(bench: Bench) -> None:
    bench.core.waits.add("r1")
    answer = await bench.engine.acquire(ASK, 0.02)
    assert answer == WaitingView(1, "job-b", 2.0, "held by job-b", 3.0)
    assert bench.core.seen == [ASK, WaiterDetached("r1")]


async def test_a_grant_that_comes_at_the_very_end_of_a_wait_is_heard(bench: Bench) -> None:
    # the core has granted, so the request waits no more, and this call's time is over: it asks once more
    bench.core.on(AcquireRequested)
    bench.core.on(AcquireRequested, GRANTED)
    assert await bench.engine.acquire(ASK, 0) == GRANTED
    assert bench.core.seen == [ASK, ASK]


async def test_a_grant_on_its_way_to_the_disk_is_waited_for_though_the_time_is_over(bench: Bench) -> None:
    bench.core.on(AcquireRequested, Save(CounterRecord(1, 1)), GRANTED)
    assert await bench.engine.acquire(ASK, 0) == GRANTED
    assert bench.core.seen == [ASK]


async def test_a_request_that_neither_waits_nor_is_granted_has_ended(bench: Bench) -> None:
    with pytest.raises(RequestEnded):
        await bench.engine.acquire(ASK, 0)


async def test_the_last_of_several_calls_to_leave_detaches(bench: Bench) -> None:
    calls = [asyncio.create_task(bench.engine.acquire(ASK, 5)) for _ in range(2)]
    await asyncio.sleep(0.02)
    for number, call in enumerate(calls):
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        assert bench.core.seen.count(WaiterDetached("r1")) == number


async def test_while_the_store_fails_nothing_leaves_and_calls_are_refused_before_their_step(bench: Bench) -> None:
    bench.store.fails = True
    bench.core.on(Yielded, YieldAccepted("l1", 1, False), Save(CounterRecord(1, 1)), COMMAND)
    for _ in range(3):
        with pytest.raises(StoreFailed, match="disk full"):
            await bench.engine.do(Yielded("l1", "job-a"), YieldAccepted)
    assert bench.core.seen == [Yielded("l1", "job-a")]
    assert bench.log == []
    bench.store.fails = False
    await asyncio.sleep(1.0)  # the timer's, since nobody asks
    assert bench.log == [[CounterRecord(1, 1)], COMMAND]


async def test_a_grant_that_cannot_be_written_ends_the_calls_that_wait_for_it(bench: Bench) -> None:
    waiting = asyncio.create_task(bench.engine.acquire(ASK, 5))
    await asyncio.sleep(0.02)
    bench.store.fails = True
    bench.core.on(NodeLost, GRANTED, Save(CounterRecord(1, 1)))
    bench.engine.post(NodeLost("n1"))
    with pytest.raises(StoreFailed):
        await waiting
    bench.store.fails = False
    bench.core.on(AcquireRequested, GRANTED)
    assert await bench.engine.acquire(ASK, 5) == GRANTED
    assert bench.log == [[CounterRecord(1, 1)]]


async def test_renewals_are_answered_while_the_store_fails(bench: Bench) -> None:
    bench.store.fails = True
    bench.core.on(NodeLost, Save(CounterRecord(1, 1)))
    bench.engine.post(NodeLost("n1"))
    await asyncio.sleep(0.02)
    bench.core.on(LeasesRenewed, LeasesChecked((), ("l1",)))
    assert bench.engine.renew(LeasesRenewed("job-a", ("l1",)), LeasesChecked).wanted == ("l1",)


async def test_after_the_stop_nothing_is_taken_any_more(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.core.on(NodeLost, Save(CounterRecord(1, 1)))
    bench.engine.post(NodeLost("n1"))
    await bench.engine.stop()
    assert bench.log == [[CounterRecord(1, 1)]]
    bench.engine.post(NodeLost("n1"))
    assert bench.core.seen == [NodeLost("n1")]
    with pytest.raises(Stopping):
        await bench.engine.acquire(ASK, 5)
    with pytest.raises(Stopping):
        bench.engine.view("g")


async def test_a_stop_with_a_store_that_fails_says_what_is_lost(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.store.fails = True
    bench.core.on(NodeLost, Save(CounterRecord(1, 1)))
    bench.engine.post(NodeLost("n1"))
    with caplog.at_level(logging.ERROR):
        await bench.engine.stop()
    assert "stopped with 1 records unwritten: disk full" in caplog.text


async def test_the_core_is_woken_at_the_last_time_that_it_named(bench: Bench) -> None:
    now = asyncio.get_running_loop().time()
    for delay in (0.05, 60.0, 0.1):
        bench.core.on(NodeLost, WakeAt(now + delay))
        bench.engine.post(NodeLost("n1"))
    await asyncio.sleep(0.07)
    assert Tick() not in bench.core.seen
    await asyncio.sleep(0.1)
    assert bench.core.seen.count(Tick()) == 1


async def test_a_defect_in_a_tick_is_logged_and_ticks_go_on(
    bench: Bench, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timeslice_orchestrator.engine._REARM_S", 0.02)
    good: Callable[[Event, float], list[Effect]] = bench.core.step

    def defective(event: Event, now: float) -> list[Effect]:
        if isinstance(event, Tick) and not ticks:
            ticks.append(event)
            raise ZeroDivisionError
        return good(event, now)

    ticks: list[Event] = []
    bench.core.step = defective  # type: ignore[method-assign]
    bench.core.on(NodeLost, WakeAt(asyncio.get_running_loop().time()))
    with caplog.at_level(logging.ERROR):
        bench.engine.post(NodeLost("n1"))
        await asyncio.sleep(0.1)
    assert "a tick of the core failed" in caplog.text
    assert Tick() in bench.core.seen


@pytest.fixture(autouse=True)
def no_forgotten_exceptions(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    yield
    assert "never retrieved" not in caplog.text


def test_the_store_and_its_double_have_the_same_face(tmp_path: Path) -> None:
    store = SqliteStore.open(tmp_path / "state.sqlite3")
    store.write([CounterRecord(1, 1)], [])
    store.close()
