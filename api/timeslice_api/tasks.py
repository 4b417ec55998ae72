"""How tasks of an event loop end together."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def cancelled(*tasks: asyncio.Future[Any]) -> None:
    """Cancels them, and returns when they have ended, with whatever they ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def until_one_ends(*works: Coroutine[Any, Any, Any]) -> None:
    """Runs them side by side until the first ends, and raises what that raises. The others are cancelled."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        await cancelled(*tasks)
