"""Running a part of the platform until a signal ends it."""

from __future__ import annotations

import argparse
import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, Protocol

from timeslice_api.errors import Unavailable
from timeslice_api.garbage import collect_all_seldom
from timeslice_api.tasks import cancelled, until_one_ends


class Service(Protocol):
    """An orchestrator or a node."""

    async def start(self) -> None:
        """Starts, or raises TimesliceError."""
        ...

    async def stop(self) -> None:
        """Stops in order, within a bounded time."""
        ...


def serve(
    services: Callable[[], Iterable[Service]],
    ready: Callable[[], None],
    *,
    failed: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> int:
    """Starts the services in order, says so, and stops them in reverse at SIGTERM or Ctrl-C. A second signal kills.

    `failed` runs from then on; when it returns or raises, the services are stopped too, and what it raised is raised.
    """
    return asyncio.run(_serve(services, ready, failed))


async def _serve(
    services: Callable[[], Iterable[Service]],
    ready: Callable[[], None],
    failed: Callable[[], Coroutine[Any, Any, None]] | None,
) -> int:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _first_signal, loop, ended)
    async with AsyncExitStack() as stack:
        for service in services():
            stack.push_async_callback(service.stop)
            if not await _started(service, ended):
                return 0
        ready()
        collect_all_seldom()
        await until_one_ends(ended.wait(), *([failed()] if failed else []))
    return 0


async def _started(service: Service, ended: asyncio.Event) -> bool:
    """Starts it; False when a signal came first."""
    starting = asyncio.ensure_future(service.start())
    ending = asyncio.ensure_future(ended.wait())
    try:
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
        return starting.done()
    finally:
        await cancelled(starting, ending)


def _first_signal(loop: asyncio.AbstractEventLoop, ended: asyncio.Event) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.remove_signal_handler(number)
    ended.set()


async def within(seconds: float, waiting: Awaitable[None], what: str) -> None:
    """Waits for something at the start. Raises Unavailable after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await waiting
    except TimeoutError:
        raise Unavailable(f"{what} took longer than {seconds:g} s") from None


def ready_line(text: str) -> Callable[[], None]:
    """Prints a text when the service is ready, for people and for scripts that wait for it."""
    return lambda: print(text, flush=True)


def configure_log(arguments: argparse.Namespace) -> None:
    """Sends the log to standard error as the options say."""
    from timeslice_orchestrator import log

    log.configure(arguments.log_level, as_json=arguments.log_json)
