"""`timeslice node --kubernetes` as a process: it serves a kubelet, and ends in order."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from dra_samples import DRIVER, NODE
from fake_api_server import FakeApiServer
from fake_kubelet import FakeKubelet
from gpu_emulator.emulator import Emulator
from node_world import MIB
from plugin_world import PluginWorld
from scripted_orchestrator import ScriptedOrchestrator

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

COMMAND = "from timeslice.cli.main import main; raise SystemExit(main())"


@pytest.fixture
def options() -> dict[str, Any]:
    return {"gpus": 1, "memory": 64 * MIB}


async def test_the_command_serves_the_kubelet_and_ends_at_sigterm(emulator: Emulator, folder: Path) -> None:
    kubelet = folder / "kubelet"
    registry = kubelet / "plugins_registry"
    registry.mkdir(parents=True)
    orchestrator = ScriptedOrchestrator(folder / "o.sock")
    await orchestrator.start()
    async with FakeApiServer() as server:
        cluster = PluginWorld(emulator, server, folder)
        await cluster.set_up()
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", COMMAND, "node", "--kubernetes", "--node-name", NODE),
            *("--orchestrator", orchestrator.address, "--state-dir", str(folder / "s")),
            *("--kubeconfig", str(server.kubeconfig(folder / "kubeconfig")), "--kubelet-dir", str(kubelet)),
            *("--claim-sockets", str(folder / "claims"), "--cdi-dir", str(folder / "cdi")),
            *("--cdi-static-dir", str(folder / "e"), "--dev-root", str(emulator.dev_root)),
            *("--libcuda", str(emulator.libraries / "libcuda.so.1")),
            *("--libnvml", str(emulator.libraries / "libnvidia-ml.so.1"), "--telemetry-listen", "127.0.0.1:0"),
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **emulator.variables},
        )
        try:
            assert process.stdout
            assert await process.stdout.readline() == b"claims are prepared on node-a\n"
            await FakeKubelet(registry).register_all()
            hello = await orchestrator.hello()
            assert (hello.node, len(hello.devices)) == (NODE, 1)
            assert [path.name for path in (kubelet / "plugins" / DRIVER).iterdir() if path.suffix == ".sock"]
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(15):
                assert await process.wait() == 0
            assert not list(registry.glob("*.sock"))
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await orchestrator.stop()
