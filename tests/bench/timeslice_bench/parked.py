"""5,000 acquires that wait at once: what they cost the orchestrator, and whether each gets its one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc
from timeslice_api.v1alpha1.types_pb2 import Lease

from timeslice_bench.case import Effort, Measurement
from timeslice_bench.layout import Group, many_groups
from timeslice_bench.orchestrator_client import Caller, connect
from timeslice_bench.platform import Platform, platform
from timeslice_bench.process_stats import usage

GROUPS = 10
CONNECTIONS = 50
BURSTS = 5
QUEUED_LIMIT_S = 60.0


@dataclass
class Request:
    """One waiting acquire and the ends that it met."""

    caller: Caller
    request_id: str
    withdraw: bool
    withdrawn: bool = False
    granted: int = 0
    errors: int = 0

    @property
    def lost(self) -> bool:
        """Whether it met any other end than the one that it should: one grant, or its withdrawal."""
        return (self.granted, self.withdrawn) != ((0, True) if self.withdraw else (1, False))

    async def run(self) -> None:
        """Waits for the grant, and gives it back at once."""
        try:
            lease = await self.caller.acquire(self.request_id)
            self.granted += 1
            await self.caller.yield_(lease)
        except grpc.aio.AioRpcError:
            self.errors += 1  # the end of one that is withdrawn; counted against every other

    async def take_back(self) -> None:
        """Withdraws it."""
        self.withdrawn = await self.caller.withdraw(self.request_id)


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`parked_lost` and `parked_rss_mb`."""
    layout = many_groups(GROUPS, members=False)
    async with platform(layout, directory, profile) as running:
        channels = [connect(running.address) for _ in range(CONNECTIONS)]
        try:
            return await _measure(running, layout.groups, channels, effort)
        finally:
            await asyncio.gather(*(channel.close() for channel in channels))


async def _measure(
    running: Platform, groups: Sequence[Group], channels: Sequence[grpc.aio.Channel], effort: Effort
) -> list[Measurement]:
    holders = [Caller(channels[0], group.group_id, "holder") for group in groups]
    leases = [await holder.acquire() for holder in holders]
    requests = _requests(groups, channels, effort)
    start = time.monotonic()
    waits = await _park(holders, requests)
    parked_s = time.monotonic() - start
    rss = usage(running.orchestrator_pid).rss
    waiting = await _waiting(holders)

    await asyncio.gather(*(request.take_back() for request in requests if request.withdraw))
    await asyncio.gather(*(_give_back(pair) for pair in zip(holders, leases, strict=True)))
    await asyncio.wait(waits, timeout=effort.limit_s / 2)
    left = await _waiting(holders)

    lost = sum(request.lost for request in requests) + left
    detail = (
        f"{waiting} waited at once, queued in {parked_s:.1f} s; {sum(r.granted for r in requests)} granted, "
        f"{sum(r.withdrawn for r in requests)} withdrawn, {left} left in the queue"
    )
    return [
        Measurement("parked_lost", lost, detail=detail, sound=waiting == effort.parked),
        Measurement("parked_rss_mb", rss / 1e6, detail=f"with {waiting} waiting", sound=waiting == effort.parked),
    ]


def _requests(groups: Sequence[Group], channels: Sequence[grpc.aio.Channel], effort: Effort) -> list[Request]:
    withdraw_from = effort.parked_granted
    return [
        Request(
            Caller(channels[n % len(channels)], groups[n % len(groups)].group_id, f"job-{n}"),
            request_id=f"request-{n}",
            withdraw=n >= withdraw_from,
        )
        for n in range(effort.parked)
    ]


async def _park(holders: Sequence[Caller], requests: Sequence[Request]) -> list[asyncio.Task[None]]:
    """Sends all requests, in bursts of which each is sent at once, and returns when all are in the queue."""
    waits: list[asyncio.Task[None]] = []
    size = -(-len(requests) // BURSTS)
    for first in range(0, len(requests), size):
        waits += [asyncio.create_task(request.run()) for request in requests[first : first + size]]
        async with asyncio.timeout(QUEUED_LIMIT_S):
            while await _waiting(holders) + sum(wait.done() for wait in waits) < len(waits):
                await asyncio.sleep(0.25)
    return waits


async def _waiting(holders: Sequence[Caller]) -> int:
    return sum([await holder.waiters() for holder in holders])


async def _give_back(held: tuple[Caller, Lease]) -> None:
    holder, lease = held
    await holder.yield_(lease)
