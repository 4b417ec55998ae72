"""The groups file in a running orchestrator: in force at once, and a bad one never."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest
from running_orchestrator import Running
from scripted_node import ScriptedNode, by_group
from timeslice_api.errors import ConfigError, JobNotAdmitted
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb

ONE = "groups:\n  g:\n    jobs: [job-a]\n    devices:\n      n1: [d1]\n"
TWO = "groups:\n  g:\n    jobs: [job-a, job-b]\n    devices:\n      n1: [d1]\n  h:\n    devices:\n      n1: all\n"


async def groups(running: Running) -> list[str]:
    answer = await running.call(running.stub.ListGroups(pb.ListGroupsRequest()))
    return [group.group_id for group in answer.groups]


async def started(folder: Path, text: str) -> Running:
    (folder / "groups.yaml").write_text(text)
    running = Running(folder, groups_file=folder / "groups.yaml")
    await running.start()
    return running


async def eventually(running: Running, wanted: list[str]) -> None:
    async with asyncio.timeout(5):
        while await groups(running) != wanted:  # the file system tells the server when it likes
            await asyncio.sleep(0.02)


async def test_the_file_says_which_groups_there_are_and_who_may(short_dir: Path) -> None:
    running = await started(short_dir, ONE)
    async with ScriptedNode(running.channel, "n1", {"default": ("d1", "d2")}):
        assert await groups(running) == ["g"]
        assert (await running.lease("r1", "job-a")).job_id == "job-a"
        with pytest.raises(JobNotAdmitted):
            await running.acquire("r2", "job-b")
    await running.close()


async def test_a_changed_file_is_in_force_at_once_and_holders_go_on(short_dir: Path) -> None:
    running = await started(short_dir, ONE)
    async with ScriptedNode(running.channel, "n1", {}, devices=("d1", "d2")):
        lease = await running.lease("r1", "job-a")
        (short_dir / "groups.yaml").write_text(TWO)
        await eventually(running, ["g", "h"])
        assert [device.device_id for device in (await running.group("h")).devices] == ["d2"]
        assert (await running.acquire("r2", "job-b", wait_s=0)).waiting.holder_job_id == "job-a"
        await running.release(lease)
        assert (await running.lease("r2", "job-b")).job_id == "job-b"
    await running.close()


async def test_a_node_is_told_its_groups_at_the_welcome_and_when_the_file_changes(short_dir: Path) -> None:
    running = await started(short_dir, ONE)
    async with (
        ScriptedNode(running.channel, "n1", {"default": ("d1", "d2")}) as node,
        ScriptedNode(running.channel, "n2", {"own": ("d3",)}) as other,
    ):
        assert by_group(node.welcome) == {"g": ("d1",)}
        assert by_group(other.welcome) == {"own": ("d3",)}
        (short_dir / "groups.yaml").write_text(TWO)
        async with asyncio.timeout(5):
            assert await node.told.get() == {"g": ("d1",), "h": ("d2",)}
        (short_dir / "groups.yaml").write_text("groups: {}\n")
        async with asyncio.timeout(5):
            assert await node.told.get() == {"default": ("d1", "d2")}  # its own declaration is in force again
        assert other.told.empty()
    await running.close()


async def test_a_bad_file_is_told_and_the_last_good_one_stays(
    short_dir: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = await started(short_dir, TWO)
    with caplog.at_level(logging.ERROR):
        (short_dir / "groups.yaml").write_text("groups:\n  g:\n    devises: {}\n")
        async with asyncio.timeout(5):
            while not running.server.groups_file_error:
                await asyncio.sleep(0.02)
    assert "line 3: groups.g.devises is not known here" in running.server.groups_file_error
    assert "the last good one stays in force" in caplog.text
    assert await groups(running) == ["g", "h"]
    (short_dir / "groups.yaml").unlink()
    await asyncio.sleep(0.2)
    assert await groups(running) == ["g", "h"]
    (short_dir / "groups.yaml").write_text(ONE)
    await eventually(running, ["g"])
    assert running.server.groups_file_error == ""
    await running.close()


@pytest.mark.parametrize(("text", "problem"), [("groups: [", "line 1"), (None, "cannot read groups file")])
async def test_a_start_with_a_bad_or_missing_file_is_refused(short_dir: Path, text: str | None, problem: str) -> None:
    running = Running(short_dir, groups_file=short_dir / "groups.yaml")
    if text is not None:
        (short_dir / "groups.yaml").write_text(text)
    with pytest.raises(ConfigError, match=problem):
        await running.start()
    await running.channel.close()
