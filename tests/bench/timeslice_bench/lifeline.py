"""The child's side of `child`: says that it is ready, answers lines, and ends when its parent lets go or dies."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any


def say(**answer: Any) -> None:
    """One JSON object to the parent."""
    print(json.dumps(answer), flush=True)


async def lines() -> AsyncIterator[str]:
    """The parent's lines; ends when it closes the pipe, dies, or sends SIGTERM."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, reader.feed_eof)
    while line := await reader.readline():
        yield line.decode().strip()


async def until_let_go() -> None:
    """Returns when the parent closes the pipe, dies, or sends SIGTERM."""
    async for _ in lines():
        pass
