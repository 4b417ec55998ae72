"""Holding groups around functions of every kind."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any, TypeVar, cast

from timeslice.session import Session

F = TypeVar("F", bound=Callable[..., Any])


def decorate(function: F, session: Session, group_ids: tuple[str, ...], *, timeout: float | None) -> F:
    """The function, holding the groups while its body runs; its signature and kind stay.

    Raises:
        TypeError: it is not callable.
    """
    if isinstance(function, (classmethod, staticmethod)):
        inner = decorate(function.__func__, session, group_ids, timeout=timeout)
        return cast(F, type(function)(inner))
    if not callable(function):
        raise TypeError(f"on_accelerators decorates functions, not {function!r}")
    return cast(F, _wrapper(function, session, group_ids, timeout))


def _wrapper(
    function: Callable[..., Any], session: Session, group_ids: tuple[str, ...], timeout: float | None
) -> Callable[..., Any]:
    from timeslice._async.region import AsyncRegion
    from timeslice._sync.region import Region

    def region() -> Region:
        return Region(session, group_ids, timeout)

    def async_region() -> AsyncRegion:
        return AsyncRegion(session, group_ids, timeout)

    # an object with __call__ is of the kind of that method
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    body = function if plain else type(function).__call__
    if inspect.iscoroutinefunction(body):
        return _coroutine(function, async_region)
    if inspect.isasyncgenfunction(body):
        return _async_generator(function, async_region)
    if inspect.isgeneratorfunction(body):
        return _generator(function, region)
    return _plain(function, region)


def _plain(function: Callable[..., Any], region: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def held(*args: Any, **kwargs: Any) -> Any:
        with region():
            result = function(*args, **kwargs)
            _refuse_unstarted(function, result)
            return result

    return held


def _refuse_unstarted(function: Callable[..., Any], result: Any) -> None:
    """A plain function that returns a coroutine or generator hides that its body has yet to run, without the lease."""
    if not (inspect.iscoroutine(result) or inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return
    if inspect.iscoroutine(result):
        result.close()
    raise TypeError(
        f"{function!r} returned {result!r}, whose body would run without the accelerators: "
        "put on_accelerators directly on the coroutine function or generator"
    )


def _coroutine(function: Callable[..., Any], region: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def held(*args: Any, **kwargs: Any) -> Any:
        async with region():
            return await function(*args, **kwargs)

    return held


def _generator(function: Callable[..., Any], region: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def held(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with region():
            return (yield from function(*args, **kwargs))

    return held


def _async_generator(function: Callable[..., Any], region: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def held(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        async with region(), contextlib.aclosing(function(*args, **kwargs)) as inner:
            step = inner.__anext__()
            while True:
                try:
                    item = await step
                except StopAsyncIteration:
                    return
                try:
                    sent = yield item
                except GeneratorExit:
                    raise
                except BaseException as error:  # noqa: BLE001 - thrown in by the consumer, the body's to handle
                    step = inner.athrow(error)
                else:
                    step = inner.asend(sent)

    return held
