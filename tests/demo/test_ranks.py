from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import numpy as np
import pytest
from grpo import ranks
from grpo.policy import Floats
from grpo.ranks import Ranks

SIZE = 3


@contextmanager
def together() -> Iterator[Callable[[Callable[[Ranks], Floats]], list[Floats]]]:
    """Runs a function in each rank at once, and gives what they return."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ThreadPoolExecutor(SIZE) as threads:
        made = list(threads.map(lambda rank: Ranks(rank, SIZE, host="127.0.0.1", port=port), range(SIZE)))
        try:
            yield lambda function: list(threads.map(function, made))
        finally:
            for each in made:
                each.close()


def test_each_rank_gets_the_same_mean_of_what_all_have() -> None:
    given = np.random.default_rng(3).standard_normal((SIZE, 300_000), np.float32)
    with together() as run:
        first, *others = run(lambda each: each.mean(given[each.rank]))
    np.testing.assert_allclose(first, given.mean(axis=0), rtol=1e-4, atol=1e-6)
    assert all(np.array_equal(first, other) for other in others), "to the last bit"


def test_the_only_rank_learns_from_its_own() -> None:
    values = np.ones(3, np.float32)
    with closing(Ranks()) as alone:
        assert alone.mean(values) is values


def test_a_rank_that_has_ended_ends_the_others() -> None:
    def one_ends(each: Ranks) -> Floats:
        if each.rank == 1:
            each.close()
            return np.zeros(0, np.float32)
        return each.mean(np.zeros(4, np.float32))

    with together() as run, pytest.raises(OSError, match=r"ended|reset|Broken pipe"):
        run(one_ends)


def test_a_rank_that_does_not_come_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "START_S", 0.1)
    with pytest.raises(TimeoutError):
        Ranks(0, 2)
    with pytest.raises(ConnectionRefusedError):
        Ranks(1, 2, host="127.0.0.1", port=1)
