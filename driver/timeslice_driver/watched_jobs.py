"""What `WatchJobs` tells, to whomever."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

from timeslice_api.v1alpha1.snapshot_agent_pb2 import ListJobsResponse

from timeslice_driver.table import Table


async def watched(table: Table, jobs: Callable[[], ListJobsResponse]) -> AsyncGenerator[ListJobsResponse, None]:
    """What `jobs` gives now, and again each time that a change of the table has changed it. Never ends by itself."""
    news = asyncio.Event()
    unlisten = table.listen(lambda _: news.set())
    told = None
    try:
        while True:
            news.clear()
            if (now := jobs()) != told:
                yield now
                told = now
            await news.wait()
    finally:
        unlisten()
