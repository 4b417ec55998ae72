"""Figures: what they count, and that nobody can make too many of them. And what a log line in JSON has."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import aiohttp
import pytest
from running_orchestrator import Running
from scripted_core import GRANTED, LEASE
from scripted_node import ScriptedNode
from timeslice_api.errors import InvalidRequest
from timeslice_orchestrator.core.effects import Drop, HandedOver, LeasesEnded, Save
from timeslice_orchestrator.core.events import CommandDone, Event, GroupsChanged, PartsReported, Tick
from timeslice_orchestrator.core.model import (
    Fault,
    GroupSpec,
    GroupTotals,
    GroupView,
    LeaseRecord,
    MemberKey,
    PartReport,
    PartState,
    Timings,
)
from timeslice_orchestrator.engine import Engine
from timeslice_orchestrator.log import JsonFormatter
from timeslice_orchestrator.telemetry import Telemetry

MEMBER = MemberKey("job-a", "g")


def failed(reason: str, state: PartState = PartState.FAILED) -> PartReport:
    return PartReport(MEMBER, frozenset({"d1"}), state, True, Fault(reason, "oh"))


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


def state(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    samples = (sample for family in telemetry.state() for sample in family.samples)
    return next((one.value for one in samples if (one.name, one.labels) == (name, labels)), None)


async def test_waits_and_holds_are_counted_once_for_each_grant() -> None:
    telemetry = Telemetry()
    telemetry.stepped(Tick(), [Save(LeaseRecord(LEASE)), GRANTED])
    telemetry.stepped(Tick(), [GRANTED])  # its client has asked again
    telemetry.stepped(Tick(), [Drop(LeaseRecord(LEASE)), LeasesEnded(("l1",), "job-a", "its processes ended")])
    telemetry.stepped(Tick(), [Drop(LeaseRecord(LEASE))])  # one of before a restart
    assert value(telemetry, "timeslice_wait_seconds_count", group="g") == 1
    assert value(telemetry, "timeslice_hold_seconds_count", group="g") == 1
    assert value(telemetry, "timeslice_leases_taken_total", reason="its_processes_ended") == 1


@pytest.mark.parametrize(
    "event",
    [CommandDone("n1", 1, (failed("LockTimeout", PartState.RUNNING),)), PartsReported("n1", (failed("LockTimeout"),))],
    ids=["of a command", "by itself"],
)
def test_faults_are_counted_by_group_and_reason(event: Event) -> None:
    telemetry = Telemetry()
    telemetry.stepped(event, [])
    assert value(telemetry, "timeslice_faults_total", group="g", reason="LockTimeout") == 1


def test_reasons_that_a_node_makes_up_become_few_labels() -> None:
    telemetry = Telemetry()
    for number in range(1000):
        name = "".join(chr(ord("A") + int(digit)) for digit in str(number))
        telemetry.stepped(CommandDone("n1", 1, (), Fault(name, "oh")), [])
    telemetry.stepped(CommandDone("n1", 1, (), Fault("job-17 has failed at 12:00", "oh")), [])
    (family,) = (one for one in telemetry.registry.collect() if one.name == "timeslice_faults")
    assert len({sample.labels["reason"] for sample in family.samples}) <= 65
    assert (value(telemetry, "timeslice_faults_total", group="", reason="Other") or 0) > 900


async def test_figures_of_a_group_go_with_it() -> None:
    telemetry = Telemetry()
    telemetry.stepped(GroupsChanged((GroupSpec("g", ()),)), [])
    telemetry.stepped(PartsReported("n1", (failed("LockTimeout"),)), [Save(LeaseRecord(LEASE)), GRANTED])
    telemetry.stepped(GroupsChanged(()), [])
    assert value(telemetry, "timeslice_wait_seconds_count", group="g") is None
    assert value(telemetry, "timeslice_faults_total", group="g", reason="LockTimeout") is None


def test_hand_offs_and_their_steps_are_told_by_how_long_they_took() -> None:
    telemetry = Telemetry()
    for seconds in (0.2, 4.0):
        telemetry.stepped(Tick(), [HandedOver(("g",), seconds, (("g", Timings(lock_s=seconds / 2)),))])
    assert value(telemetry, "timeslice_handoff_seconds_bucket", group="g", le="0.25") == 1
    assert value(telemetry, "timeslice_handoff_seconds_sum", group="g") == 4.2
    assert value(telemetry, "timeslice_handoff_step_seconds_bucket", group="g", step="lock", le="2.5") == 2
    assert value(telemetry, "timeslice_handoff_step_seconds_count", group="g", step="restore") is None
    telemetry.stepped(GroupsChanged((GroupSpec("g", ()),)), [])
    telemetry.stepped(GroupsChanged(()), [])
    assert value(telemetry, "timeslice_handoff_seconds_count", group="g") is None
    assert value(telemetry, "timeslice_handoff_step_seconds_count", group="g", step="lock") is None


def test_each_step_of_a_hand_off_has_its_own_time() -> None:
    telemetry = Telemetry()
    took = {"lock": 0.25, "checkpoint": 8.0, "restore": 4.0, "unlock": 0.5}
    timings = Timings(**{f"{step}_s": seconds for step, seconds in took.items()})
    telemetry.stepped(Tick(), [HandedOver(("g",), 13.0, (("g", timings),))])
    name = "timeslice_handoff_step_seconds_sum"
    assert {step: value(telemetry, name, group="g", step=step) for step in took} == took


def test_totals_of_hand_offs_have_units() -> None:
    totals = GroupTotals(grants=3, handoffs=2, bytes_parked=10, bytes_restored=20, lock_s=0.5, handoff_s=4.0)
    engine = SimpleNamespace(groups=lambda: [GroupView("g", (("d1", "n1", False),), duty_cycle=0.25, totals=totals)])
    telemetry = Telemetry()
    assert state(telemetry, "timeslice_leader") == 0
    telemetry.leads(cast(Engine, engine))
    assert state(telemetry, "timeslice_leader") == 1
    assert state(telemetry, "timeslice_grants_total", group="g") == 3
    assert state(telemetry, "timeslice_parked_bytes_total", group="g") == 10
    assert state(telemetry, "timeslice_restored_bytes_total", group="g") == 20
    assert state(telemetry, "timeslice_duty_cycle_ratio", group="g") == 0.25
    assert state(telemetry, "timeslice_group_devices_unreachable", group="g") == 1


async def test_an_orchestrator_alone_serves_them_too(short_dir: Path) -> None:
    running = Running(short_dir, telemetry_listen="127.0.0.1:0")
    await running.start()
    try:
        async with ScriptedNode(running.channel, "n1", {"g": ("d1",)}), aiohttp.ClientSession() as session:
            await running.lease("r1", "job-a")
            assert running.server.telemetry_port
            base = f"http://127.0.0.1:{running.server.telemetry_port}"
            async with session.get(f"{base}/readyz") as answer:
                assert answer.status == 200
            async with session.get(f"{base}/metrics") as answer:
                text = await answer.text()
        assert 'timeslice_grants_total{group="g"} 1.0' in text
        assert 'timeslice_leases{group="g"} 1.0' in text
        assert "timeslice_store_write_seconds_count" in text
        assert "job-a" not in text  # nobody is asked who reads them
    finally:
        await running.close()


async def test_a_refused_call_is_logged_with_what_it_is_about_as_fields_of_their_own(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(InvalidRequest):
        await running.acquire("r1", "job-a", "nowhere/")
    (record,) = (one for one in caplog.records if one.name.endswith("rpc.calls"))
    line = json.loads(JsonFormatter().format(record))
    assert (line["request_id"], line["job_id"], line["group_id"]) == ("r1", "job-a", "nowhere/")
    assert line["error"] == "InvalidRequest"
    assert line.keys() == {"time", "level", "logger", "message", "request_id", "job_id", "group_id", "error"}
