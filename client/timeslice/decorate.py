"""Holding groups around functions of every kind."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])
Region: TypeAlias = Callable[[], Any]


@dataclass(frozen=True)
class Regions:
    """Makes regions: context managers that hold the groups. `awaiting` makes asynchronous ones, if there are such."""

    plain: Region
    awaiting: Region | None


def decorate(function: F, regions: Regions) -> F:
    """The function, inside a region while its body runs; its signature and kind stay.

    Raises:
        TypeError: it is not callable, or is a coroutine function where there are no asynchronous regions.
    """
    if isinstance(function, (classmethod, staticmethod)):
        return cast(F, type(function)(decorate(function.__func__, regions)))
    if not callable(function):
        raise TypeError(f"on_accelerators decorates functions, not {function!r}")
    # an object with __call__ is of the kind of that method
    plain = inspect.isroutine(function) or isinstance(function, functools.partial)
    body = function if plain else type(function).__call__
    return cast(F, _wrapper(body)(function, _region(body, regions)))


def _wrapper(body: Callable[..., Any]) -> Callable[[Callable[..., Any], Region], Callable[..., Any]]:
    if inspect.iscoroutinefunction(body):
        return _coroutine
    if inspect.isasyncgenfunction(body):
        return _async_generator
    return _generator if inspect.isgeneratorfunction(body) else _plain


def _region(body: Callable[..., Any], regions: Regions) -> Region:
    if not (inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body)):
        return regions.plain
    if regions.awaiting is None:
        raise TypeError(f"{body!r} is asynchronous, and this client is not")
    return regions.awaiting


def _plain(function: Callable[..., Any], region: Region) -> Callable[..., Any]:
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


def _coroutine(function: Callable[..., Any], region: Region) -> Callable[..., Any]:
    @functools.wraps(function)
    async def held(*args: Any, **kwargs: Any) -> Any:
        async with region():
            return await function(*args, **kwargs)

    return held


def _generator(function: Callable[..., Any], region: Region) -> Callable[..., Any]:
    @functools.wraps(function)
    def held(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with region():
            return (yield from function(*args, **kwargs))

    return held


def _async_generator(function: Callable[..., Any], region: Region) -> Callable[..., Any]:
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
