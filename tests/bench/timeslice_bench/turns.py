"""Jobs that take turns on their groups: as fast as they can, or each for a while; and how long each hand-off took.

How long a job holds varies as the times between independent events do (exponentially), so that the yields of many
groups come one by one. Were all times equal, groups that once yielded together would do so in every round, and a
hand-off's time would be that of its crowd. So would those who wait ask again in one crowd, as they began together:
the first call of each waits for a time of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from timeslice_api.v1alpha1.types_pb2 import Lease

from timeslice_bench.layout import Group
from timeslice_bench.orchestrator_client import WAIT_S, Caller, connect

RENEWAL_S = 5.0
JOBS_OF_A_CONNECTION = 50
_JOIN_LIMIT_S = 120.0


@dataclass
class Turns:
    """What the jobs of some groups do and how it goes.

    Attributes:
        hold_s: how long a job holds in the mean before it yields; may be changed while they run.
        hand_offs_s: seconds from a yield to the grant of the next job in line, of each hand-off since `forget`.
    """

    groups: Sequence[Group]
    hold_s: float = 0.0
    hand_offs_s: list[float] = field(default_factory=list)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _yielded_at: dict[str, tuple[str, float]] = field(default_factory=dict)

    def forget(self) -> None:
        """Starts to count anew."""
        self.hand_offs_s.clear()

    def hold(self, seconds: float) -> None:
        """Changes the mean time; those who hold at the moment yield after their share of the new one."""
        self.hold_s = seconds
        self._changed.set()
        self._changed = asyncio.Event()

    async def take(self, caller: Caller) -> None:
        """One job's turns, until it is cancelled.

        Raises:
            grpc.aio.AioRpcError: the orchestrator refuses, or does not answer.
        """
        drawn = Random(caller.job_id)  # the same in every run
        first_wait_s = drawn.uniform(WAIT_S / 2, WAIT_S)
        while True:
            lease = await caller.acquire(first_wait_s=first_wait_s)
            first_wait_s = WAIT_S
            self._granted(caller)
            await self._hold(caller, lease, drawn.expovariate(1.0))
            self._yielded_at[caller.group_id] = caller.job_id, time.monotonic()
            await caller.yield_(lease)

    def _granted(self, caller: Caller) -> None:
        before, since = self._yielded_at.get(caller.group_id, (caller.job_id, 0.0))
        if before != caller.job_id:
            self.hand_offs_s.append(time.monotonic() - since)

    async def _hold(self, caller: Caller, lease: Lease, share: float) -> None:
        since, renewed = time.monotonic(), time.monotonic()
        while (left := since + share * self.hold_s - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(left, RENEWAL_S)):
                    await self._changed.wait()
            except TimeoutError:
                if time.monotonic() - renewed >= RENEWAL_S:
                    await caller.renew(lease)
                    renewed = time.monotonic()


@asynccontextmanager
async def taking(turns: Turns, address: str) -> AsyncIterator[asyncio.Task[None]]:
    """All jobs of the groups take turns, over connections of which each carries several jobs.

    Yields a task that ends only with the error of the first job that has one.
    """
    jobs = [(group.group_id, job) for group in turns.groups for job in group.jobs]
    channels = [connect(address) for _ in range(-(-len(jobs) // JOBS_OF_A_CONNECTION))]
    callers = [Caller(channels[n // JOBS_OF_A_CONNECTION], *job) for n, job in enumerate(jobs)]
    running = asyncio.ensure_future(_all(turns, callers))
    try:
        yield running
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in channels))


async def _all(turns: Turns, callers: Sequence[Caller]) -> None:
    async with asyncio.TaskGroup() as tasks:
        for caller in callers:
            tasks.create_task(turns.take(caller))


async def until_queued(groups: Sequence[Group], address: str, running: asyncio.Task[None]) -> int:
    """Returns how many requests wait, once each group has a holder and all its other jobs are in its queue.

    Raises:
        TimeoutError: they are not there in two minutes.
    """
    expected = sum(group.sharers - 1 for group in groups)
    channel = connect(address)
    try:
        async with asyncio.timeout(_JOIN_LIMIT_S):
            while (waiting := await _waiting(Caller(channel, "", ""))) < expected:
                await during(running, 0.5)
        return waiting
    finally:
        await channel.close()


async def _waiting(caller: Caller) -> int:
    return sum(len(group.waiters) for group in await caller.groups())


async def during(running: asyncio.Task[None], seconds: float) -> None:
    """Lets the jobs go on for so long; raises what one of them raised."""
    await asyncio.wait([running], timeout=seconds)
    if running.done():
        running.result()
