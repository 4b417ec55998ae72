"""Lines of the log about a job have it and its group as fields, so that they are found whatever their text."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from node_world import MIB, World, failing
from timeslice_api.errors import JobNotFound

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]


def lines(caplog: pytest.LogCaptureFixture, job_id: str) -> list[str]:
    """What is told of that job in group `default`."""
    wanted = {"job_id": job_id, "group_id": "default"}
    return [each.getMessage() for each in caplog.records if vars(each).items() >= wanted.items()]


async def test_each_move_of_a_job_is_told_with_what_its_steps_took(
    world: World, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    await world.register("a", jobs(MIB).pid)
    with caplog.at_level(logging.INFO):
        await world.park("a")
        await world.restore("a")
    parked, restored = (line for line in lines(caplog, "a") if " is " in line)
    assert parked.startswith("job a in group default is parked (lock 0.")
    assert ", checkpoint 0." in parked
    assert restored.startswith("job a in group default is running (restore 0.")
    assert ", unlock 0." in restored


async def test_a_move_that_fails_is_told_with_the_reason_as_a_field(
    world: World, jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    job = jobs(MIB)
    await world.register("a", job.pid)
    world.emulator.inject(Fault("checkpoint", pid=job.pid, rc=2))
    with caplog.at_level(logging.WARNING), failing("NoMemory") as failed:
        await world.park("a")
    (line,) = lines(caplog, "a")
    assert line.startswith("job a in group default is running (")
    assert line.endswith(failed.value.message)
    assert [vars(each)["fault"] for each in caplog.records if hasattr(each, "fault")] == [failed.value.reason]


async def test_a_call_that_is_refused_is_told_with_the_job_that_it_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    await world.start()
    with caplog.at_level(logging.INFO), pytest.raises(JobNotFound):
        await world.park("nobody")
    (record,) = (each for each in caplog.records if each.getMessage().startswith("refused: "))
    assert vars(record)["job_id"] == "nobody"
    assert not hasattr(record, "group_id"), "none was named"
