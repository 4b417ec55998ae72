from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import grpc.aio
import plugin_process
import pytest
import pytest_asyncio
from plugin_world import PluginWorld

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

Start = Callable[[str], Awaitable[asyncio.subprocess.Process]]


@pytest_asyncio.fixture
async def start(world: PluginWorld) -> AsyncIterator[Start]:
    """Starts the plugin in a process that is killed at the named step."""
    kubeconfig = world.server.kubeconfig(world.folder / "kubeconfig")
    started: list[asyncio.subprocess.Process] = []

    async def start(step: str) -> asyncio.subprocess.Process:
        arguments = [
            Path(plugin_process.__file__),
            world.folder,
            kubeconfig,
            world.config.libnvml,
            world.config.dev_root,
        ]
        process = await asyncio.create_subprocess_exec(
            sys.executable, *map(str, arguments), step, stdout=asyncio.subprocess.PIPE
        )
        started.append(process)
        assert process.stdout
        assert await process.stdout.readline() == b"up\n"
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("step", ["started", "parts", "cdi", "completed"])
async def test_a_plugin_killed_in_prepare_answers_the_kubelet_s_next_call(
    world: PluginWorld, start: Start, step: str
) -> None:
    uid = await world.add_claim()
    process = await start(step)
    with pytest.raises(grpc.aio.AioRpcError):
        await world.prepare(uid)
    assert await process.wait() == -signal.SIGKILL
    await world.start()
    answer = await world.prepare(uid)
    assert answer.error == ""
    assert world.records().claims[uid].state == "completed"
    assert (world.folder / "cdi" / f"timeslice.dev-claim_{uid}.json").exists()
    assert (world.folder / "claims" / uid).is_dir()
    assert set(world.parts.claims) == {uid}


@pytest.mark.parametrize("step", ["started", "parts", "cdi", "completed"])
async def test_after_a_kill_in_prepare_a_pod_that_is_deleted_leaves_nothing_behind(
    world: PluginWorld, start: Start, step: str
) -> None:
    uid = await world.add_claim()
    await start(step)
    with pytest.raises(grpc.aio.AioRpcError):
        await world.prepare(uid)
    await world.start()
    assert await world.unprepare(uid) == ""
    assert world.records().held == ()
    assert world.parts.claims == {}
    assert list((world.folder / "cdi").glob("*")) == []
    assert list((world.folder / "claims").glob("*")) == []
    other = await world.add_claim("d", "gpu-0-rl-b")
    assert not (await world.prepare(other, "d")).error, "its GPU is free"


@pytest.mark.parametrize("step", ["cdi removed", "parts removed", "unprepared"])
async def test_a_plugin_killed_in_unprepare_finishes_it_at_the_next_call(
    world: PluginWorld, start: Start, step: str
) -> None:
    uid = await world.add_claim()
    await start(step)
    assert not (await world.prepare(uid)).error
    with pytest.raises(grpc.aio.AioRpcError):
        await world.unprepare(uid)
    await world.start()
    assert await world.unprepare(uid) == ""
    assert world.records().held == ()
    assert world.parts.claims == {}
    assert list((world.folder / "cdi").glob("*")) == []
