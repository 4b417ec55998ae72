"""A driver that does as a test says, and claims for it."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dra_kubeletplugin import Claim, ClaimRef, PreparedDevice, PrepareError
from dra_kubeletplugin.apiserver import CLAIMS, Object
from fake_api_server import FakeApiServer

DRIVER = "gpu.example.com"
NODE = "node-a"


class ScriptedDriver:
    """Prepares each result with one CDI id. `devices` may say otherwise; `go` cleared holds calls up."""

    def __init__(self) -> None:
        self.devices: Callable[[Claim], Sequence[PreparedDevice] | PrepareError] = usual_devices
        self.raises: BaseException | None = None
        self.go = asyncio.Event()
        self.go.set()
        self.entered = asyncio.Event()
        self.prepared: list[Claim] = []
        self.unprepared: list[ClaimRef] = []
        self.failures: list[Exception] = []
        self.failure = asyncio.Event()
        self.under_way = 0
        self.most_under_way = 0

    async def prepare(self, claims: Sequence[Claim]) -> Mapping[str, Sequence[PreparedDevice] | PrepareError]:
        await self._pass()
        self.prepared += claims
        return {claim.ref.uid: self.devices(claim) for claim in claims}

    async def unprepare(self, claims: Sequence[ClaimRef]) -> Mapping[str, PrepareError | None]:
        await self._pass()
        self.unprepared += claims
        return dict.fromkeys([claim.uid for claim in claims], None)

    async def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.failure.set()

    async def until_failures(self, count: int, within_s: float = 5) -> None:
        async with asyncio.timeout(within_s):
            while len(self.failures) < count:
                self.failure.clear()
                await self.failure.wait()

    async def _pass(self) -> None:
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        self.entered.set()
        try:
            await asyncio.sleep(0)
            await self.go.wait()
            if self.raises:
                raise self.raises
        finally:
            self.under_way -= 1


def usual_devices(claim: Claim) -> list[PreparedDevice]:
    return [PreparedDevice.of(result, f"example.com/gpu={result.device}") for result in claim.results]


def result(device: str, *, request: str = "gpu", driver: str = DRIVER, **more: Any) -> Object:
    return {"driver": driver, "request": request, "pool": NODE, "device": device} | more


async def allocate(server: FakeApiServer, name: str, *results: Object, **allocation: Any) -> ClaimRef:
    """A claim with these results, as the scheduler leaves it."""
    pod = {"resource": "pods", "name": f"pod-of-{name}", "uid": str(uuid.uuid4())}
    devices = {"results": list(results or [result("gpu-0")])} | allocation
    body = {
        "metadata": {"namespace": "jobs", "name": name},
        "status": {"allocation": {"devices": devices}, "reservedFor": [pod]},
    }
    raw = await server.put(CLAIMS, body)
    return ClaimRef("jobs", name, raw["metadata"]["uid"])
