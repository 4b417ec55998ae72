"""What people see of a group follows what happens in it, in as few writes as can be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from dra_kubeletplugin.apiserver import ApiServer
from fake_api_server import FakeApiServer, Refusal
from offices import lease, make_groups, opened, patches, request, status_of
from timeslice_api.errors import GroupNotFound
from timeslice_orchestrator.core.effects import GroupChanged
from timeslice_orchestrator.core.events import Tick
from timeslice_orchestrator.core.model import (
    Fault,
    GroupView,
    HolderView,
    MemberView,
    PartState,
    PartView,
    Setback,
    WaiterView,
)
from timeslice_orchestrator.kubernetes import shown as module
from timeslice_orchestrator.kubernetes.shown import Showing, shown

HELD = GroupView(
    "g1",
    devices=(("d1", "n1", True),),
    members=(
        MemberView("job-a", (PartView("n1", PartState.RUNNING, 1000, 2), PartView("n2", PartState.RUNNING, 500, 1))),
        MemberView("job-b", (PartView("n1", PartState.PARKED, 700, 1),), quarantine_reason="it cannot come back"),
    ),
    holders=(HolderView("job-a", 2, 3.0, 7),),
    waiters=(WaiterView("job-b", "r2", 1, 2.0, "host:1"),),
    duty_cycle=0.614,
)
FREE = GroupView("g1", devices=(("d1", "n1", True),), duty_cycle=0.5)


class Views:
    def __init__(self) -> None:
        self.now = HELD

    def __call__(self, group_id: str) -> GroupView:
        if group_id != "g1":
            raise GroupNotFound(group_id)
        return self.now


class Said(dict[str, tuple[Setback, ...]]):
    """What was told of groups' setbacks."""

    def __call__(self, group_id: str, setbacks: tuple[Setback, ...]) -> None:
        self[group_id] = setbacks


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_EVERY_S", 0.2)


@asynccontextmanager
async def following(showing: Showing) -> AsyncIterator[None]:
    task = asyncio.create_task(showing.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def changed(showing: Showing, group_id: str = "g1") -> None:
    showing.stepped(Tick(), [GroupChanged(group_id)])


def test_the_fields_are_those_of_the_columns_and_name_each_member() -> None:
    fields = shown(HELD)
    assert (fields["holder"], fields["waiting"], fields["dutyCycle"]) == ("job-a", 1, "61%")
    assert fields["members"] == [
        {"job": "job-a", "state": "running", "nodes": ["n1", "n2"], "bytes": 1500},
        {"job": "job-b", "state": "parked", "nodes": ["n1"], "bytes": 700, "quarantine": "it cannot come back"},
    ]


async def test_a_change_is_shown_and_the_next_one_not_before_its_time(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store, views = await opened(api, 1), Views()
    showing = Showing(store, views, Said())
    server.calls.clear()
    async with following(showing):
        for number in range(8):
            views.now = HELD if number % 2 else FREE
            changed(showing)
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.3)
    assert 2 <= len(patches(server)) <= 4
    assert status_of(server, "g1")["holder"] == "job-a"


async def test_what_is_due_goes_along_with_the_records(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    showing = Showing(store, Views(), Said())
    server.calls.clear()
    changed(showing)
    answer = store.write([lease("r1", "job-a")])
    assert answer
    await answer
    async with following(showing):
        await asyncio.sleep(0.3)
    assert patches(server) == ["g1"]
    assert status_of(server, "g1")["waiting"] == 1


async def test_why_hand_offs_were_rolled_back_is_told_while_it_is_so(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store, views, said = await opened(api, 1), Views(), Said()
    showing = Showing(store, views, said)
    setbacks = (Setback("job-a", Fault("HostMemory", "job-a on n1: no room")),)
    async with following(showing), asyncio.timeout(5):
        for wanted in (setbacks, ()):
            views.now = replace(HELD, setbacks=wanted)
            changed(showing)
            while said.get("g1") != wanted:
                await asyncio.sleep(0.02)


async def test_nothing_is_written_when_people_would_see_no_difference(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1", "g2")
    store = await opened(api, 1)
    showing = Showing(store, Views(), Said())
    async with following(showing):
        changed(showing)
        await asyncio.sleep(0.3)
        answer = store.write([request("r1", "job-b", "g2")])  # the counters of the others rise
        assert answer
        await answer
        server.calls.clear()
        changed(showing)
        changed(showing, "gone")
        await asyncio.sleep(0.5)
    assert patches(server) == []


async def test_a_failure_is_tried_again(server: FakeApiServer, api: ApiServer) -> None:
    await make_groups(server, "g1")
    store = await opened(api, 1)
    showing = Showing(store, Views(), Said())
    server.refuse("PATCH", "timeslicegroups", Refusal(503, "ServiceUnavailable"), subresource="status", times=2)
    async with following(showing):
        changed(showing)
        async with asyncio.timeout(5):
            while status_of(server, "g1").get("holder") != "job-a":
                await asyncio.sleep(0.02)
