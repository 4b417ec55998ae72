from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import pytest
from fake_orchestrator import FakeOrchestrator
from timeslice import AsyncOrchestratorClient, GroupNotFound, LeaseLost, OrchestratorClient
from timeslice_api.errors import InvalidRequest


def test_a_function_runs_with_the_group_held(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    @client.on_accelerators(group_id="t")
    def train_phase(model: str, *, steps: int = 1) -> list[str]:
        """Trains."""
        return [model, *fake.holders]

    assert train_phase("m", steps=2) == ["m", "job-a"]
    assert fake.holders == []
    assert [request.group_id for request in fake.methods("Acquire")] == ["t"]
    assert (train_phase.__name__, train_phase.__doc__) == ("train_phase", "Trains.")
    assert str(inspect.signature(train_phase)) == "(model: 'str', *, steps: 'int' = 1) -> 'list[str]'"


def test_without_parentheses_it_means_the_default_group(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    @client.on_accelerators
    def phase() -> list[str]:
        return fake.holders

    @client.on_accelerators()
    def phase_too() -> list[str]:
        return fake.holders

    assert phase() == phase_too() == ["job-a"]
    assert [request.group_id for request in fake.methods("Acquire")] == ["g", "g"]


@pytest.mark.parametrize("face", ["sync", "async"])
async def test_a_coroutine_function_is_held_until_its_body_has_ended(
    client: OrchestratorClient, async_client: AsyncOrchestratorClient, fake: FakeOrchestrator, face: str
) -> None:
    chosen: Any = client if face == "sync" else async_client

    @chosen.on_accelerators(group_id="g")
    async def phase(value: int) -> tuple[int, list[str]]:
        await chosen_sleep()
        return value, fake.holders

    assert inspect.iscoroutinefunction(phase)
    assert await phase(3) == (3, ["job-a"])
    assert fake.holders == []


async def chosen_sleep() -> None:
    import asyncio

    await asyncio.sleep(0.01)


def test_a_generator_is_held_from_its_first_step_to_its_end(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    @client.on_accelerators
    def rollouts(count: int) -> Iterator[int]:
        received = yield from range(count)
        return received

    steps = rollouts(2)
    assert inspect.isgeneratorfunction(rollouts)
    assert fake.holders == []
    assert next(steps) == 0
    assert fake.holders == ["job-a"]
    assert list(steps) == [1]
    assert fake.holders == []


def test_a_generator_that_is_closed_early_gives_back(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    @client.on_accelerators
    def rollouts() -> Iterator[int]:
        yield 1
        yield 2

    steps = rollouts()
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert fake.holders == []


@pytest.mark.parametrize("face", ["sync", "async"])
async def test_an_async_generator_passes_values_and_errors_in_and_out(
    client: OrchestratorClient, async_client: AsyncOrchestratorClient, fake: FakeOrchestrator, face: str
) -> None:
    chosen: Any = client if face == "sync" else async_client

    @chosen.on_accelerators
    async def echo() -> AsyncIterator[Any]:
        heard: Any = None
        while True:
            try:
                heard = yield heard
            except KeyError as error:
                heard = error

    steps: Any = echo()
    assert inspect.isasyncgenfunction(echo)
    assert await anext(steps) is None
    assert fake.holders == ["job-a"]
    assert await steps.asend("hello") == "hello"
    assert isinstance(await steps.athrow(KeyError("x")), KeyError)
    await steps.aclose()
    assert fake.holders == []


def test_methods_of_all_three_kinds_are_held(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    class Trainer:
        @client.on_accelerators
        def step(self) -> tuple[Trainer, list[str]]:
            return self, fake.holders

        @client.on_accelerators(group_id="g")
        @classmethod
        def create(cls) -> tuple[type[Trainer], list[str]]:
            return cls, fake.holders

        @classmethod
        @client.on_accelerators
        def create_too(cls) -> tuple[type[Trainer], list[str]]:
            return cls, fake.holders

        @client.on_accelerators
        @staticmethod
        def loss(value: int) -> tuple[int, list[str]]:
            return value, fake.holders

    trainer = Trainer()
    assert trainer.step() == (trainer, ["job-a"])
    assert Trainer.create() == Trainer.create_too() == (Trainer, ["job-a"])
    assert trainer.loss(3) == (3, ["job-a"])


async def test_partials_and_callable_objects_are_of_the_kind_of_their_body(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    async def phase(a: int, b: int) -> tuple[int, list[str]]:
        return a + b, fake.holders

    class Phase:
        async def __call__(self) -> list[str]:
            return fake.holders

    assert await client.on_accelerators(functools.partial(phase, 1))(2) == (3, ["job-a"])
    held: Callable[[], Awaitable[list[str]]] = client.on_accelerators(Phase())
    assert await held() == ["job-a"]
    assert client.on_accelerators(functools.partial(sum, [1, 2]))() == 3


async def test_a_plain_function_that_returns_a_coroutine_is_an_error_not_an_unguarded_run(
    client: OrchestratorClient,
) -> None:
    async def body() -> None:
        pytest.fail("it ran without the accelerators")

    hidden = client.on_accelerators(lambda: body())
    with pytest.raises(TypeError, match="without the accelerators"):
        await hidden()


def test_only_functions_are_decorated(client: OrchestratorClient) -> None:
    with pytest.raises(TypeError, match="decorates functions"):
        client.on_accelerators("g")(3)  # type: ignore[type-var]


def test_a_region_may_be_entered_inside_itself(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    region = client.on_accelerators("g")
    with region, region:
        assert fake.holders == ["job-a"]
    assert fake.holders == []


def test_the_bodys_error_is_not_hidden_by_a_failing_yield(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    fake.faults["Yield"].append(InvalidRequest("never heard of it"))
    with pytest.raises(ZeroDivisionError) as caught, client.on_accelerators("g"):
        raise ZeroDivisionError
    assert "never heard of it" in caught.value.__notes__[0]


def test_a_failing_yield_is_an_error_when_the_body_succeeded(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    fake.faults["Yield"].append(InvalidRequest("never heard of it"))
    with pytest.raises(InvalidRequest, match="never heard"), client.on_accelerators("g"):
        pass


def test_a_bodys_own_lease_error_passes_through(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with pytest.raises(LeaseLost, match="mine"), client.on_accelerators("g"):
        raise LeaseLost("mine")
    assert fake.holders == []


def test_idle_lends_the_group_out_and_takes_it_back(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    with client.on_accelerators("g") as lease:
        with client.on_accelerators("g"), client.idle():
            assert fake.holders == []
            assert not lease.held
            with other.on_accelerators("g"):
                assert fake.holders == ["job-b"]
        assert fake.holders == ["job-a"]
        assert (lease.held, lease.token) == (True, 3)
    assert fake.holders == []


def test_a_failure_to_take_the_group_back_does_not_hide_the_blocks_error(
    client: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    @client.on_accelerators
    def phase() -> None:
        with client.idle():
            fake.refused["g"] = GroupNotFound("the group is gone")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        phase()
    assert "the group is gone" in caught.value.__notes__[0]
    assert fake.holders == []


def test_an_interrupted_idle_block_does_not_wait_for_the_group_again(
    client: OrchestratorClient, other: OrchestratorClient, fake: FakeOrchestrator
) -> None:
    @client.on_accelerators
    def phase() -> None:
        with client.idle():
            other.acquire("g")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        phase()
    assert fake.holders == ["job-b"]
    assert fake.waiters == []


def test_idle_outside_a_region_does_nothing(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.idle():
        pass
    assert fake.calls == []


def test_idle_takes_several_groups_back_in_one_call(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    with client.on_accelerators("t"), client.on_accelerators("s"):
        with client.idle("t"):
            assert [sorted(held.groups) for held in fake.state.granted.values()] == [["s"]]
        with client.idle():
            assert fake.holders == []
        assert [sorted(held.groups) for held in fake.state.granted.values()] == [["s", "t"]]
    assert fake.holders == []


def test_idle_keeps_what_another_thread_uses(client: OrchestratorClient, fake: FakeOrchestrator) -> None:
    import threading

    from patience import in_thread

    inside, leave = threading.Event(), threading.Event()

    def use() -> None:
        with client.on_accelerators("g"):
            inside.set()
            leave.wait(5)

    with client.on_accelerators("g"):
        thread = in_thread(use)
        assert inside.wait(5)
        with client.idle():
            assert fake.holders == ["job-a"]
        leave.set()
        thread.join(5)


async def test_async_idle_lends_out_inside_an_async_region(
    async_client: AsyncOrchestratorClient, fake: FakeOrchestrator
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(async_client.on_accelerators("g"))
        async with async_client.idle():
            assert fake.holders == []
        assert fake.holders == ["job-a"]
    assert fake.holders == []
