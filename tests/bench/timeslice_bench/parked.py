"""5,000 acquires that wait at once: what they cost the orchestrator, and whether each gets its one answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
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
RENEWAL_S = 5.0


@dataclass
class Request:
    """One waiting acquire and the end that it met."""

    caller: Caller
    request_id: str
    withdraw: bool
    withdrawn: bool = False
    granted: bool = False

    @property
    def lost(self) -> bool:
        """Whether it met any other end than its own: the grant, or the withdrawal."""
        return (self.granted, self.withdrawn) != (not self.withdraw, self.withdraw)

    async def run(self) -> None:
        """Waits for the grant, and gives it back at once."""
        try:
            lease = await self.caller.acquire(self.request_id)
            self.granted = True
            await self.caller.yield_(lease)
        except grpc.aio.AioRpcError:
            pass  # how the call of a withdrawn request ends; of any other, `lost` tells

    async def take_back(self) -> None:
        """Withdraws it."""
        self.withdrawn = await self.caller.withdraw(self.request_id)


class Holders:
    """The jobs that hold the groups while the others queue; they renew their leases until they give them back."""

    def __init__(self, callers: Iterable[Caller]) -> None:
        self._callers = list(callers)
        self._leases: list[Lease] = []

    async def acquire(self) -> None:
        """Takes all groups."""
        self._leases = [await caller.acquire() for caller in self._callers]

    async def renew(self) -> None:
        """Keeps them, until it is cancelled."""
        while True:
            await asyncio.sleep(RENEWAL_S)
            for caller, lease in zip(self._callers, self._leases, strict=True):
                await caller.renew(lease)

    async def yield_(self) -> None:
        """Gives all back at once."""
        pairs = zip(self._callers, self._leases, strict=True)
        await asyncio.gather(*(caller.yield_(lease) for caller, lease in pairs))

    async def waiting(self) -> int:
        """How many requests wait for the groups."""
        return sum([await caller.waiters() for caller in self._callers])


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`parked_lost` and `parked_rss_mb`."""
    layout = many_groups(GROUPS, members=False)
    async with platform(layout, directory, profile) as running:
        channels = [connect(running.address) for _ in range(CONNECTIONS)]
        holders = Holders(Caller(channels[0], group.group_id, f"{group.group_id}-holder") for group in layout.groups)
        renewing = asyncio.create_task(holders.renew())
        try:
            await holders.acquire()
            return await _measure(running, holders, _requests(layout.groups, channels, effort), renewing)
        finally:
            renewing.cancel()
            await asyncio.gather(*(channel.close() for channel in channels))


def _requests(groups: Sequence[Group], channels: Sequence[grpc.aio.Channel], effort: Effort) -> list[Request]:
    return [
        Request(
            Caller(channels[n % len(channels)], groups[n % len(groups)].group_id, f"job-{n}"),
            request_id=f"request-{n}",
            withdraw=n >= effort.parked_granted,
        )
        for n in range(effort.parked)
    ]


async def _measure(
    running: Platform, holders: Holders, requests: Sequence[Request], renewing: asyncio.Task[None]
) -> list[Measurement]:
    start = time.monotonic()
    waits = await _park(holders, requests)
    queued_s = time.monotonic() - start
    waiting, rss = await holders.waiting(), usage(running.orchestrator_pid).rss

    await asyncio.gather(*(request.take_back() for request in requests if request.withdraw))
    renewing.cancel()
    await holders.yield_()
    await asyncio.gather(*waits)
    left = await holders.waiting()

    lost = sum(request.lost for request in requests) + left
    detail = (
        f"{waiting} waited at once, queued in {queued_s:.1f} s; {sum(r.granted for r in requests)} granted, "
        f"{sum(r.withdrawn for r in requests)} withdrawn, {left} left in the queue"
    )
    all_waited = waiting == len(requests)
    return [
        Measurement("parked_lost", lost, detail=detail, sound=all_waited),
        Measurement("parked_rss_mb", rss / 1e6, detail=f"with {waiting} waiting", sound=all_waited),
    ]


async def _park(holders: Holders, requests: Sequence[Request]) -> list[asyncio.Task[None]]:
    """Sends all requests, in bursts of which each is sent at once, and returns when all are in the queue."""
    waits: list[asyncio.Task[None]] = []
    size = -(-len(requests) // BURSTS)
    for first in range(0, len(requests), size):
        waits += [asyncio.create_task(request.run()) for request in requests[first : first + size]]
        async with asyncio.timeout(QUEUED_LIMIT_S):
            while await holders.waiting() + sum(wait.done() for wait in waits) < len(waits):
                await asyncio.sleep(0.25)
    return waits
