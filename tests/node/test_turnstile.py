from __future__ import annotations

import asyncio

import pytest
from timeslice_driver.turnstile import Turnstile


class Floor:
    """Operations that say when they begin and end."""

    def __init__(self) -> None:
        self.turnstile = Turnstile()
        self.log: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}

    def enter(self, name: str, *devices: str) -> asyncio.Task[None]:
        self.gates[name] = asyncio.Event()
        return asyncio.create_task(self._operate(name, devices))

    async def _operate(self, name: str, devices: tuple[str, ...]) -> None:
        async with self.turnstile.turn(devices):
            self.log.append(name)
            await self.gates[name].wait()

    async def leave(self, name: str) -> None:
        self.gates[name].set()
        await self.settle()

    async def settle(self) -> None:
        for _ in range(20):
            await asyncio.sleep(0)


async def test_operations_on_one_device_go_in_the_order_in_which_they_came() -> None:
    floor = Floor()
    tasks = [floor.enter(name, "d") for name in "abc"]
    await floor.settle()
    assert floor.log == ["a"]
    await floor.leave("a")
    assert floor.log == ["a", "b"]
    await floor.leave("b")
    await floor.leave("c")
    assert floor.log == ["a", "b", "c"]
    await asyncio.gather(*tasks)


async def test_operations_on_other_devices_do_not_wait() -> None:
    floor = Floor()
    tasks = [floor.enter("a", "d0"), floor.enter("b", "d1"), floor.enter("c", "d0", "d1"), floor.enter("e", "d2")]
    await floor.settle()
    assert floor.log == ["a", "b", "e"]
    await floor.leave("a")
    assert "c" not in floor.log
    await floor.leave("b")
    assert floor.log[-1] == "c"
    await floor.leave("c")
    await floor.leave("e")
    await asyncio.gather(*tasks)


async def test_whoever_is_cancelled_while_waiting_lets_nobody_past_the_one_inside() -> None:
    floor = Floor()
    first, second, third = (floor.enter(name, "d") for name in "abc")
    await floor.settle()
    second.cancel()
    await floor.settle()
    assert floor.log == ["a"]
    await floor.leave("a")
    assert floor.log == ["a", "c"]
    await floor.leave("c")
    await asyncio.gather(first, third)
    with pytest.raises(asyncio.CancelledError):
        await second


async def test_all_through_waits_for_what_has_come_by_then() -> None:
    floor = Floor()
    task = floor.enter("a", "d")
    await floor.settle()
    waiting = asyncio.create_task(floor.turnstile.all_through())
    await floor.settle()
    assert not waiting.done()
    await floor.leave("a")
    await asyncio.wait_for(waiting, 1)
    await task
    await asyncio.wait_for(floor.turnstile.all_through(), 1)
