"""The only places where a client waits: a pair for each kind of wait, `async_*` for a loop and `sync_*` for threads."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import grpc

    from timeslice.lifetime import Followed

Method: TypeAlias = "grpc.UnaryUnaryMultiCallable[Any, Any]"


def sync_call(method: Method, request: Any, timeout: float) -> Any:
    """Calls and blocks the thread; `timeout` in seconds. Raises grpc.RpcError. Ctrl-C cancels the call."""
    return method(request, timeout=timeout)


async def async_call(method: Method, request: Any, timeout: float) -> Any:
    """Calls without blocking the loop; `timeout` in seconds. Raises grpc.RpcError. Cancelling cancels the call.

    It runs on the same channel as `sync_call`, so a client is bound to no event loop and works in several, one after
    the other or at once.
    """
    loop = asyncio.get_running_loop()
    ended = loop.create_future()

    def wake() -> None:
        if not ended.done():
            ended.set_result(None)

    def on_done(_: object) -> None:
        try:
            loop.call_soon_threadsafe(wake)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    call = method.future(request, timeout=timeout)
    try:
        call.add_done_callback(on_done)
        await ended
        return call.result()
    finally:
        call.cancel()


def sync_sleep(seconds: float) -> None:
    """Pauses the thread."""
    time.sleep(seconds)


async def async_sleep(seconds: float) -> None:
    """Pauses the task."""
    await asyncio.sleep(seconds)


def sync_close(session: Followed, until: float) -> None:
    """Ends the session in this thread, until that time (monotonic seconds)."""
    session.end(until)


async def async_close(session: Followed, until: float) -> None:
    """The same in a thread of its own, so that the loop goes on meanwhile. Cancelling it ends the wait alone."""
    await asyncio.to_thread(session.end, until)
