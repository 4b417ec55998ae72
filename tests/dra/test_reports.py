from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from dra_kubeletplugin import Claim
from dra_kubeletplugin.apiserver import CLAIMS, EVENTS
from dra_samples import DRIVER, raw_claim
from fake_api_server import FakeApiServer, Refusal
from timeslice_driver.dra import refusals
from timeslice_driver.dra.reports import Reports

CLAIM = Claim.of(raw_claim("u", "gpu-0-rl-a", "gpu-1-rl-a", pods=("trainer-0",)), driver=DRIVER)
ERROR = refusals.job_unknown()


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        await made.put(CLAIMS, CLAIM.raw)
        yield made


@pytest_asyncio.fixture
async def reports(server: FakeApiServer) -> AsyncIterator[Reports]:
    async with server.connect() as api:
        made = Reports(api, node="node-a", instance="plugin-x")
        task = asyncio.create_task(made.run())
        yield made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def status_writes(server: FakeApiServer) -> list[Any]:
    return [call for call in server.calls if call.method == "PATCH" and call.subresource == "status"]


async def test_a_refusal_says_the_same_in_the_claim_s_status_and_in_events_on_the_claim_and_its_pod(
    server: FakeApiServer, reports: Reports
) -> None:
    reports.refused(CLAIM, ERROR)
    await reports.flush()
    (call,) = status_writes(server)
    assert call.query["fieldManager"] == DRIVER
    assert call.body["metadata"] == {"name": "claim-u", "namespace": "rl", "uid": "u"}
    devices = call.body["status"]["devices"]
    assert [(each["device"], each["shareID"]) for each in devices] == [
        ("gpu-0-rl-a", "u-gpu-0-rl-a"),
        ("gpu-1-rl-a", "u-gpu-1-rl-a"),
    ]
    (condition,) = devices[0]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("Ready", "False", "JobUnknown")
    assert condition["message"] == str(ERROR)
    events = server.all(EVENTS)
    assert {event["regarding"]["kind"]: event["regarding"]["name"] for event in events} == {
        "ResourceClaim": "claim-u",
        "Pod": "trainer-0",
    }
    assert {(event["reason"], event["type"], event["reportingInstance"]) for event in events} == {
        ("JobUnknown", "Warning", "plugin-x")
    }
    assert all(str(ERROR) in event["note"] for event in events)


async def test_an_exclusive_device_has_no_share_id(server: FakeApiServer, reports: Reports) -> None:
    claim = Claim.of(raw_claim("u", "gpu-0-slot-0", shared=False), driver=DRIVER)
    reports.prepared(claim)
    await reports.flush()
    assert "shareID" not in status_writes(server)[0].body["status"]["devices"][0]


async def test_success_is_told_in_the_status_alone(server: FakeApiServer, reports: Reports) -> None:
    reports.prepared(CLAIM)
    await reports.flush()
    (call,) = status_writes(server)
    assert call.body["status"]["devices"][0]["conditions"][0]["status"] == "True"
    assert server.all(EVENTS) == []


async def test_the_same_news_is_told_once_however_often_the_kubelet_tries(
    server: FakeApiServer, reports: Reports
) -> None:
    for _ in range(3):
        reports.refused(CLAIM, ERROR)
    reports.prepared(CLAIM)
    reports.refused(CLAIM, ERROR)
    await reports.flush()
    assert len(status_writes(server)) == 3
    assert len(server.all(EVENTS)) == 2, "an event that is there is not made again"


async def test_a_claim_that_comes_back_after_unprepare_is_news(server: FakeApiServer, reports: Reports) -> None:
    reports.prepared(CLAIM)
    reports.forget("u")
    reports.prepared(CLAIM)
    await reports.flush()
    assert len(status_writes(server)) == 2


async def test_no_right_to_write_the_status_harms_nobody(
    server: FakeApiServer, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    server.refuse("PATCH", "resourceclaims", Refusal(403, "Forbidden"), subresource="status")
    reports.refused(CLAIM, ERROR)
    await reports.flush()
    assert "cannot write the status of claim rl/claim-u" in caplog.text
    assert len(server.all(EVENTS)) == 2


async def test_a_flood_of_reports_is_cut_off_rather_than_kept(
    server: FakeApiServer, reports: Reports, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        reports.prepared(Claim.of(raw_claim(f"u{number}", "gpu-0-rl-a"), driver=DRIVER))
    assert "too many reports are waiting" in caplog.text
