"""A job that acquires and yields through the product's client: so many cycles as each line says."""

from __future__ import annotations

import asyncio
import gc
import sys

from timeslice import AsyncOrchestratorClient

from timeslice_bench.lifeline import lines, say


async def main(address: str, job_id: str, group_id: str) -> None:
    """Serves the parent until it lets go."""
    async with AsyncOrchestratorClient(address, job_id=job_id) as client:
        say(ready=True)
        async for line in lines():
            for _ in range(int(line)):
                await client.acquire(group_id=group_id)
                await client.yield_(group_id=group_id)
            gc.collect()
            say(cycles=int(line))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
