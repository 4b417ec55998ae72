"""The plugin in a process of its own, which kills itself with SIGKILL when a step of prepare or unprepare is done.

python plugin_process.py FOLDER KUBECONFIG LIBNVML DEV_ROOT STEP      STEP "" never kills; says "up" once it serves
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from dra_kubeletplugin.apiserver import ApiServer
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.dra.config import PluginConfig
from timeslice_driver.dra.plugin import DraPlugin


async def main(folder: Path, kubeconfig: str, libnvml: str, dev_root: str, step: str) -> None:
    config = PluginConfig(
        node_name="node-a",
        state_dir=folder / "state",
        sockets=folder / "claims",
        host_memory=1 << 30,
        registry_dir=folder / "registry",
        data_dir=folder / "data",
        cdi_dir=folder / "cdi",
        cdi_static_dir=folder / "etc-cdi",
        dev_root=Path(dev_root),
        boot_id_file=folder / "boot_id",
        libnvml=libnvml,
    )

    def done(name: str) -> None:
        if name == step:
            os.kill(os.getpid(), signal.SIGKILL)

    parts = ClaimParts(ClaimSockets(config.sockets))
    async with await ApiServer.connect(kubeconfig=kubeconfig) as api, DraPlugin(config, api, parts, steps=done):
        print("up", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), *sys.argv[2:]))
