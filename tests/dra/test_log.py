"""Lines of the log about a claim have its UID, job and group as fields, so that they are found whatever their text."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from plugin_world import PluginWorld
from timeslice_orchestrator.log import JsonFormatter

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]


def lines(caplog: pytest.LogCaptureFixture, claim_uid: str) -> list[dict[str, Any]]:
    """As the node's process writes them, those about that claim."""
    every = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    return [line for line in every if line.get("claim_uid") == claim_uid]


async def test_what_becomes_of_a_claim_is_found_by_its_uid_its_job_and_its_group(
    world: PluginWorld, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await world.start()
        uid = await world.add_claim()
        assert (await world.prepare(uid)).error == await world.unprepare(uid) == ""
    told = lines(caplog, uid)
    texts = " / ".join(line["message"] for line in told)
    assert "claim rl/c is prepared: gpu-0-rl-a" in texts
    assert "claim rl/c is unprepared" in texts
    assert {(line["job_id"], line["group_id"]) for line in told} == {("trainer", "rl-a")}


async def test_a_refusal_is_found_by_the_claim_that_is_refused(
    world: PluginWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    assert not (await world.prepare(await world.add_claim())).error
    uid = await world.add_claim("d", "gpu-0-rl-b", job="evaluator")
    with caplog.at_level(logging.INFO):
        assert (await world.prepare(uid, "d")).error
    told = [line for line in lines(caplog, uid) if "is refused: GroupConflict" in line["message"]]
    assert [(line["level"], line["job_id"]) for line in told] == [("WARNING", "evaluator")]


async def test_a_call_for_a_claim_that_is_not_known_is_found_by_the_uid_alone(
    world: PluginWorld, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    with caplog.at_level(logging.INFO):
        assert await world.unprepare("never-seen") == ""
    (line,) = lines(caplog, "never-seen")
    assert "it was not known" in line["message"]
