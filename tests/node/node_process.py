"""A node in a process of its own, to be killed. Usage: node_process.py CONFIG.json [CRASH]

CRASH is `before-write:N` or `after-write:N`: the process dies at its N-th write of the journal, counted from the first.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from timeslice_driver.backends.cuda import Limits
from timeslice_driver.config import NodeConfig
from timeslice_driver.journal import Journal
from timeslice_driver.node import Node
from timeslice_driver.preflight import Margins

_PATHS = ("state_dir", "socket", "dev_root", "proc_root", "cgroup_root")


class NodeProcess:
    """Started and killed by a test."""

    def __init__(self, config: NodeConfig, *, crash: str = "") -> None:
        content = dataclasses.asdict(config)
        content |= {name: str(content[name]) for name in _PATHS}
        file = config.socket.with_suffix(".json")
        file.write_text(json.dumps(content))
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(file), crash], stdout=subprocess.PIPE, env=dict(os.environ)
        )
        assert self._process.stdout
        if self._process.stdout.readline() != b"ready\n":
            raise AssertionError(f"the node did not start: {self._process.wait(10)}")

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self.wait()

    def wait(self) -> int:
        """Until it has died by itself."""
        status = self._process.wait(20)
        assert self._process.stdout
        self._process.stdout.close()
        return status


def _die_at(crash: str) -> None:
    when, _, number = crash.partition("-write:")
    write, count = Journal._write, 0

    def dying(self: Journal, data: bytes) -> None:
        nonlocal count
        count += 1
        if count == int(number) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        write(self, data)
        if count == int(number):
            os.kill(os.getpid(), signal.SIGKILL)

    Journal._write = dying  # type: ignore[method-assign]


async def _serve(content: dict[str, Any]) -> None:
    content |= {name: Path(content[name]) for name in _PATHS}
    content |= {"limits": Limits(**content["limits"]), "margins": Margins(**content["margins"])}
    await Node(NodeConfig(**content)).start()
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    if sys.argv[2]:
        _die_at(sys.argv[2])
    asyncio.run(_serve(json.loads(Path(sys.argv[1]).read_text())))
