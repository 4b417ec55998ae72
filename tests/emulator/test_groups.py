"""Ranks of one NCCL group: locked together or stuck (cuda-checkpoint issue 30)."""

import contextlib
from collections.abc import Iterator

import pytest
from gpu_emulator import Emulator
from gpu_emulator.puppet import Puppet, start_job

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20


@pytest.fixture
def ranks(emulator: Emulator) -> Iterator[list[Puppet]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(start_job(emulator, MIB, flags="nccl=ring")) for _ in range(2)]


def test_ranks_that_are_locked_at_the_same_time_go_through_the_whole_cycle(ranks: list[Puppet], agent: Puppet) -> None:
    for step in ("lock", "checkpoint", "restore", "unlock"):
        calls = [agent.begin(step, pid=rank.pid, apart=True) for rank in ranks]
        assert [agent.finish(call)[0] for call in calls] == [0, 0]
    assert [agent.must("get_state", pid=rank.pid) for rank in ranks] == [0, 0]


def test_a_running_rank_answers_nothing_while_a_sibling_is_locked(ranks: list[Puppet], agent: Puppet) -> None:
    agent.must("lock", pid=ranks[0].pid)
    state = agent.begin("get_state", pid=ranks[1].pid, apart=True)
    lock = agent.begin("lock", pid=ranks[1].pid, apart=True)
    assert agent.is_blocked(state)
    assert agent.is_blocked(lock, 0.01)
    assert agent.must("get_state", pid=ranks[0].pid) == 1
    agent.must("unlock", pid=ranks[0].pid)
    assert agent.finish(state) == (0, 0)
    assert agent.finish(lock)[0] == 0


def test_a_lock_with_a_time_limit_ends_the_wait_for_a_locked_sibling(ranks: list[Puppet], agent: Puppet) -> None:
    agent.must("lock", pid=ranks[0].pid)
    assert agent.call("lock", pid=ranks[1].pid, timeout_ms=100)[0] == 600
    agent.must("unlock", pid=ranks[0].pid)
    assert agent.must("get_state", pid=ranks[1].pid) == 0


def test_the_death_of_a_locked_rank_frees_its_sibling(ranks: list[Puppet], agent: Puppet) -> None:
    agent.must("lock", pid=ranks[0].pid)
    waiting = agent.begin("get_state", pid=ranks[1].pid, apart=True)
    assert agent.is_blocked(waiting)
    ranks[0].kill()
    assert agent.finish(waiting) == (0, 0)


def test_groups_do_not_hold_up_each_other(emulator: Emulator, ranks: list[Puppet], agent: Puppet) -> None:
    with start_job(emulator, MIB, flags="nccl=tree") as other:
        agent.must("lock", pid=ranks[0].pid)
        assert agent.must("get_state", pid=other.pid) == 0
        agent.must("lock", pid=other.pid)
