"""One orchestrator process and one process of agents, started for a scenario."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from timeslice_bench.child import child, module
from timeslice_bench.layout import Layout


@dataclass(frozen=True)
class Platform:
    """Addresses of the running orchestrator, of the empty call in the same process, and its process id."""

    address: str
    empty_address: str
    orchestrator_pid: int


@asynccontextmanager
async def platform(layout: Layout, directory: Path, profile: Path | None = None) -> AsyncIterator[Platform]:
    """Runs the layout; on return every node is welcome. `profile`: where the orchestrator leaves its cProfile data.

    Raises:
        ChildError: a process did not come up.
    """
    options = ["--profile", str(profile)] if profile else []
    server = module("orchestrator_child", str(directory / "state"), *options)
    async with child("orchestrator", server, directory) as orchestrator:
        address = orchestrator.ready["address"]
        async with child("agents", module("agents_child", address, layout.to_json()), directory):
            yield Platform(address, orchestrator.ready["empty_address"], orchestrator.pid)
