"""Where a node's groups come from: its orchestrator, which reads the groups file, or its own declaration."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World
from scripted_orchestrator import ScriptedOrchestrator
from timeslice_api.errors import GroupNotFound, Unavailable
from timeslice_driver import groups_in_force
from timeslice_driver.node import Node
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.server import Orchestrator

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
ME = os.getpid()


@pytest.fixture
def options() -> dict[str, Any]:
    return {"gpus": 2, "memory": 64 * MIB}


@pytest.fixture
def ids(world: World) -> list[str]:
    """Of the two devices."""
    return [device["uuid"] for device in world.emulator.snapshot()["devices"]]


def written(folder: Path, **groups: str) -> Path:
    """A groups file: the devices of node-1 in each group, as YAML."""
    path = folder / "groups.yaml"
    lines = [f"  {group_id}:\n    devices:\n      node-1: {devices}\n" for group_id, devices in groups.items()]
    path.write_text("groups:\n" + "".join(lines))
    return path


@asynccontextmanager
async def platform(world: World, groups_file: Path | None = None, **node: Any) -> AsyncIterator[Node]:
    """A node with a real orchestrator."""
    address = f"unix://{world.folder}/o.sock"
    async with Orchestrator(OrchestratorConfig(world.folder / "o", (address,), groups_file)):
        started = await world.start(orchestrator=address, **node)
        async with asyncio.timeout(5):
            await started.linked()
        yield started
        await world.stop()


async def covered(world: World, job_id: str, group_id: str) -> list[str]:
    return list((await world.register(job_id, ME, group_id=group_id)).device_ids)


async def test_all_in_the_file_is_what_no_other_group_of_the_file_has(world: World, ids: list[str]) -> None:
    async with platform(world, written(world.folder, a=f"[{ids[1]}]", rest="all")) as node:
        assert node.groups.devices == {"a": (ids[1],), "rest": (ids[0],)}
        assert await covered(world, "job-a", "rest") == [ids[0]]
        assert await covered(world, "job-a", "a") == [ids[1]]


async def test_the_file_wins_over_what_the_node_declares(world: World, ids: list[str]) -> None:
    async with platform(world, written(world.folder, a=f"[{ids[0]}]"), groups={"own": "all"}) as node:
        assert node.groups.devices == {"a": (ids[0],)}
        with pytest.raises(GroupNotFound, match="no group 'own' on this node; known: a"):
            await world.register("job-a", ME, group_id="own")


async def test_what_a_node_declares_is_in_force_where_the_file_does_not_name_its_devices(
    world: World, ids: list[str]
) -> None:
    file = written(world.folder, a=f"[{ids[0]}]")
    async with platform(world, file, groups={"own": [ids[1]]}) as node:
        assert node.groups.devices == {"a": (ids[0],), "own": (ids[1],)}
    async with platform(world) as node:
        assert node.groups.devices == {"default": tuple(ids)}


async def test_a_job_registers_in_a_group_of_a_changed_file_without_a_restart(world: World, ids: list[str]) -> None:
    async with platform(world, written(world.folder, a="all")) as node:
        written(world.folder, a=f"[{ids[0]}]", b="all")
        async with asyncio.timeout(5):
            while "b" not in node.groups.devices:  # the file system tells the orchestrator when it likes
                await asyncio.sleep(0.02)
        assert await covered(world, "job-a", "b") == [ids[1]]


async def test_a_part_whose_record_is_lost_is_on_every_device_until_the_node_is_told_its_group(
    world: World, ids: list[str], jobs: Jobs
) -> None:
    file = written(world.folder, a=f"[{ids[0]}]", rest="all")
    job = jobs(2 * MIB, env={"TIMESLICE_JOB_ID": "job-a", "TIMESLICE_GROUP_ID": "a"})
    async with platform(world, file):
        await world.register("job-a", job.pid, group_id="a")
    (world.folder / "state" / "journal.json").write_bytes(b"spoilt")
    node = await world.start(orchestrator=f"unix://{world.folder}/o.sock")
    assert list((await world.parts())["job-a/a"].device_ids) == ids
    async with Orchestrator(OrchestratorConfig(world.folder / "o", (f"unix://{world.folder}/o.sock",), file)):
        async with asyncio.timeout(10):
            await node.linked()
        assert list((await world.parts())["job-a/a"].device_ids) == [ids[0]]
        await world.stop()


@pytest.fixture
async def orchestrator(world: World) -> AsyncIterator[ScriptedOrchestrator]:
    made = ScriptedOrchestrator(world.folder / "o.sock")
    await made.start()
    yield made
    await world.stop()
    await made.stop()


async def test_a_job_that_registers_before_the_welcome_waits_for_it(
    world: World, orchestrator: ScriptedOrchestrator, ids: list[str]
) -> None:
    orchestrator.groups = {"a": [ids[0]]}
    await orchestrator.stop()
    await world.start(orchestrator=orchestrator.address)
    early = asyncio.create_task(covered(world, "job-a", "a"))
    done, _ = await asyncio.wait([early], timeout=0.3)
    assert not done
    await orchestrator.start()
    assert await early == [ids[0]]


async def test_a_job_that_registers_while_no_welcome_comes_may_try_again(
    world: World, orchestrator: ScriptedOrchestrator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups_in_force, "_TOLD_WITHIN_S", 0.2)
    orchestrator.welcoming = False
    await world.start(orchestrator=orchestrator.address)
    with pytest.raises(Unavailable, match="does not know its groups yet") as refused:
        await world.register("job-a", ME)
    assert refused.value.retryable


async def test_when_the_link_is_cut_the_groups_stay(
    world: World, orchestrator: ScriptedOrchestrator, ids: list[str]
) -> None:
    orchestrator.groups = {"a": [ids[0]]}
    node = await world.start(orchestrator=orchestrator.address)
    async with asyncio.timeout(5):
        await node.linked()
    await orchestrator.stop()
    assert await covered(world, "job-a", "a") == [ids[0]]


async def test_a_part_keeps_the_devices_that_its_group_has_lost(
    world: World, orchestrator: ScriptedOrchestrator, ids: list[str], jobs: Jobs, caplog: pytest.LogCaptureFixture
) -> None:
    orchestrator.groups = {"a": ids}
    node = await world.start(orchestrator=orchestrator.address)
    job = jobs(2 * MIB)
    await world.register("job-a", job.pid, group_id="a")
    with caplog.at_level(logging.WARNING):
        orchestrator.tell_groups({"a": [ids[1]], "b": [ids[0]]})
        async with asyncio.timeout(5):
            while "b" not in node.groups.devices:
                await asyncio.sleep(0.02)
    assert f"job job-a in group a keeps {ids[0]} until it ends" in caplog.text
    assert sorted((await world.register("job-a", job.pid, group_id="a")).device_ids) == sorted(ids)
    assert await covered(world, "job-b", "a") == [ids[1]]
    result = await orchestrator.command({("job-a", "a"): "PARKED"})
    assert [NAMES[part.state] for part in result.parts] == ["PARKED"]
