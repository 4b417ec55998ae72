"""An asyncio loop: waiting for a turn blocks nothing else, and a held region lends its accelerators out for tool calls.

timeslice run --job job-a --group trainer-group -- python examples/asyncio_loop.py
"""

import asyncio

from timeslice import AsyncOrchestratorClient, WaitStatus


def tell(status: WaitStatus) -> None:
    """Called while an acquire waits."""
    print(status, flush=True)


async def tool_calls(count: int) -> int:
    """Would talk to sandboxes and tools."""
    await asyncio.gather(*(asyncio.sleep(0.05) for _ in range(count)))
    return count


async def main() -> None:
    async with AsyncOrchestratorClient(on_wait=tell) as orchestrator:
        for step in range(3):
            async with orchestrator.on_accelerators("trainer-group") as lease:
                # ... generate ...
                async with orchestrator.idle():
                    calls = await tool_calls(4)  # other jobs may use the accelerators here
                # ... train ...
                print(f"step {step}: {calls} tool calls, {'held' if lease.held else 'lost'}", flush=True)


asyncio.run(main())
