from __future__ import annotations

import asyncio

import pytest
from timeslice_api.tasks import cancelled, until_one_ends


class Work:
    """Runs until it is cancelled, and takes a moment to end."""

    def __init__(self) -> None:
        self.ended = False

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            self.ended = True


async def test_cancelled_tasks_have_ended_whatever_they_raised() -> None:
    work = Work()

    async def fail() -> None:
        raise ValueError("too early")

    tasks = [asyncio.create_task(work.run()), asyncio.create_task(fail())]
    await asyncio.sleep(0)
    await cancelled(*tasks)
    assert work.ended
    assert all(task.done() for task in tasks)


@pytest.mark.parametrize("fault", [None, ValueError("broken")])
async def test_the_first_that_ends_ends_the_others_and_its_error_is_raised(fault: ValueError | None) -> None:
    work, raised = Work(), None

    async def first() -> None:
        await asyncio.sleep(0.01)
        if fault:
            raise fault

    try:
        await until_one_ends(work.run(), first())
    except ValueError as error:
        raised = error
    assert raised is fault
    assert work.ended


async def test_who_waits_for_the_first_and_is_cancelled_takes_all_with_it() -> None:
    works = Work(), Work()
    waiting = asyncio.create_task(until_one_ends(*(work.run() for work in works)))
    await asyncio.sleep(0.01)
    await cancelled(waiting)
    assert all(work.ended for work in works)
