from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from api_objects import Refusal
from cluster_world import until
from dra_kubeletplugin.apiserver import EVENTS, ApiServer
from fake_api_server import FakeApiServer
from timeslice_orchestrator.kubernetes.events import Events, Note, Regarding, event_of

POD = Regarding("v1", "Pod", "team", "p", "uid-p")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def note(text: str = "no room", *, about: Regarding = POD, reason: str = "WaitingForGPU") -> Note:
    return Note(about, reason, "Scheduling", text)


@asynccontextmanager
async def running(api: ApiServer, clock: Clock, **more: Any) -> AsyncIterator[Events]:
    events = Events(api, "leader-1", clock=clock, **more)
    task = asyncio.create_task(events.run())
    try:
        yield events
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def notes(server: FakeApiServer) -> list[str]:
    return [event["note"] for event in server.all(EVENTS)]


async def quiet() -> None:
    await asyncio.sleep(0.1)


async def test_the_same_text_is_said_once_until_its_time_has_come(server: FakeApiServer, api: ApiServer) -> None:
    clock = Clock()
    async with running(api, clock, again_s=600) as events:
        for _ in range(5):
            events.say(note())
        await until(lambda: notes(server) == ["no room"])
        clock.now += 599
        events.say(note())
        await quiet()
        assert "series" not in server.all(EVENTS)[0]
        clock.now += 2
        events.say(note())
        await until(lambda: server.all(EVENTS)[0].get("series", {}).get("count") == 2)
        clock.now += 601
        events.say(note())
        await until(lambda: server.all(EVENTS)[0]["series"]["count"] == 3)
    assert notes(server) == ["no room"]


async def test_another_leader_goes_on_with_the_same_event(server: FakeApiServer, api: ApiServer) -> None:
    async with running(api, Clock()) as events:
        events.say(note())
        await until(lambda: server.all(EVENTS))
    async with running(api, Clock()) as events:
        events.say(note())
        await until(lambda: server.all(EVENTS)[0].get("series", {}).get("count") == 2)
    assert len(server.all(EVENTS)) == 1


async def test_a_new_text_is_said_when_the_last_one_has_stood_a_while_and_only_the_newest(
    server: FakeApiServer, api: ApiServer
) -> None:
    clock = Clock()
    async with running(api, clock, settle_s=10) as events:
        events.say(note("one"))
        await until(lambda: notes(server) == ["one"])
        events.say(note("two"))
        await quiet()
        assert notes(server) == ["one"]
        clock.now += 11
        events.say(note("three"))
        await until(lambda: notes(server) == ["one", "three"])


async def test_what_became_untrue_before_it_was_said_is_not_said(server: FakeApiServer, api: ApiServer) -> None:
    clock = Clock()
    async with running(api, clock, settle_s=10) as events:
        events.say(note("one"))
        await until(lambda: notes(server) == ["one"])
        events.say(note("two"))
        events.say(note("one"))
        clock.now += 11
        events.say(note("one"))
        await quiet()
    assert notes(server) == ["one"]


async def test_never_more_than_so_many_a_minute(server: FakeApiServer, api: ApiServer) -> None:
    clock = Clock()
    async with running(api, clock, per_minute=3) as events:
        for number in range(5):
            events.say(note(about=Regarding("v1", "Pod", "team", f"p{number}", f"uid-{number}")))
        await until(lambda: len(notes(server)) == 3)
        clock.now += 59
        events.say(note(about=Regarding("v1", "Pod", "team", "more", "uid-more")))
        await quiet()
        assert len(notes(server)) == 3
        clock.now += 2
        events.say(note(about=Regarding("v1", "Pod", "team", "last", "uid-last")))
        await until(lambda: len(notes(server)) == 6)


async def test_what_the_server_does_not_take_now_is_said_later(server: FakeApiServer, api: ApiServer) -> None:
    server.refuse("POST", "events", Refusal(500, "InternalError"))
    async with running(api, Clock()) as events:
        events.say(note())
        await until(lambda: notes(server) == ["no room"])


async def test_what_the_server_refuses_for_good_is_not_repeated(server: FakeApiServer, api: ApiServer) -> None:
    server.refuse("POST", "events", Refusal(403, "Forbidden", "namespace is being terminated"), times=100)
    async with running(api, Clock()) as events:
        events.say(note())
        await until(lambda: len(server.calls) == 1)
        events.say(note(about=Regarding("v1", "Pod", "team", "other", "uid-other")))
        await until(lambda: len(server.calls) == 2)
        await quiet()
    assert len(server.calls) == 2


async def test_an_event_that_expired_in_the_moment_of_its_repetition_is_made_anew(
    server: FakeApiServer, api: ApiServer
) -> None:
    async with running(api, Clock()) as events:
        events.say(note())
        await until(lambda: len(notes(server)) == 1)
    server.refuse("GET", "events", Refusal(404, "NotFound"))
    server.refuse("POST", "events", Refusal(409, "AlreadyExists"))
    await server.remove(EVENTS, server.all(EVENTS)[0]["metadata"]["name"], namespace="team")
    async with running(api, Clock()) as events:
        events.say(note())
        await until(lambda: notes(server) == ["no room"])


async def test_of_an_object_that_is_gone_only_the_lasting_is_said(server: FakeApiServer, api: ApiServer) -> None:
    clock = Clock()
    async with running(api, clock) as events:
        events.say(note("one"))
        await until(lambda: notes(server) == ["one"])
        events.say(note("two"))
        events.say(replace(note("three", reason="Evicted"), lasting=True))
        events.forget("uid-p")
        clock.now += 100
        events.say(note("four", about=Regarding("v1", "Pod", "team", "q", "uid-q")))
        await until(lambda: "four" in notes(server))
    assert notes(server) == ["one", "three", "four"]


NOW = datetime(2026, 11, 29, 16, 0, 0, 123456, tzinfo=UTC)


def test_an_event_keeps_the_rules_of_its_kind() -> None:
    long = Regarding("timeslice.dev/v1alpha1", "TimesliceGroup", "", "g" * 253, "uid")
    body = event_of(note("ü" * 2000, about=long), "i" * 300, NOW)
    assert body["metadata"]["namespace"] == "default"
    assert "namespace" not in body["regarding"]
    assert len(body["metadata"]["name"]) <= 253
    assert len(body["note"].encode()) <= 1024
    assert len(body["reportingInstance"]) <= 128
    assert body["eventTime"] == "2026-11-29T16:00:00.123456Z"


@pytest.mark.parametrize(
    "other", [note("else"), note(reason="Else"), note(about=Regarding("v1", "Pod", "team", "p", "another"))]
)
def test_an_events_name_tells_object_reason_and_text_apart(other: Note) -> None:
    name = event_of(note(), "i", NOW)["metadata"]["name"]
    assert name == event_of(note(), "another", datetime.now(UTC))["metadata"]["name"]
    assert name != event_of(other, "i", NOW)["metadata"]["name"]
