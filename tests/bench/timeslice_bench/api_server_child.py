"""The API server of the tests, which keeps objects in memory, with one group."""

from __future__ import annotations

import asyncio
import sys
from datetime import datetime
from pathlib import Path

from dra_kubeletplugin.apiserver.resource import LEASES
from fake_api_server import FakeApiServer
from timeslice_orchestrator.kubernetes.cluster import GROUPS

from timeslice_bench.lifeline import lines, say


async def main(kubeconfig: Path, group_id: str) -> None:
    """Serves until the parent lets go. Answers each line with the time of the leader's last renewal (Unix seconds)."""
    async with FakeApiServer() as server:
        body = {"apiVersion": GROUPS.api_version, "kind": "TimesliceGroup", "metadata": {"name": group_id}, "spec": {}}
        await server.put(GROUPS, body)
        server.kubeconfig(kubeconfig)
        say(url=server.url)
        async for _ in lines():
            lease = server.one(LEASES, "timeslice-orchestrator", namespace="timeslice")
            assert lease is not None
            say(renewed_at=datetime.fromisoformat(lease["spec"]["renewTime"]).timestamp())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
