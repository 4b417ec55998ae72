"""kill -9 of each program at the worst moments: every byte is found again, every acquire ends once."""

from __future__ import annotations

import pytest
from cluster import Cluster, Job
from patience import eventually
from two_jobs import go_on, parked_and_holding

MACHINES = 1
pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]
JUST_BEFORE = {"checkpoint": "locked", "restore": "checkpointed"}  # where the leaving job is when the step begins


def is_in_step(cluster: Cluster, step: str, *, coming: Job, leaving: Job) -> None:
    """Starts a hand-off, and returns when its step has begun, which a fault keeps from ending."""
    cluster.waits(coming)
    leaving.does("yield")
    eventually(lambda: cluster.machines[0].gpu_state(leaving) == JUST_BEFORE[step])
    assert coming.waits(0.1)


@pytest.mark.parametrize(("step", "fault"), [("checkpoint", {"hang": True}), ("restore", {"delay_ms": 600})])
def test_a_node_killed_within_a_hand_off_goes_on_with_it(
    cluster: Cluster, step: str, fault: dict[str, float | bool]
) -> None:
    parked, holder = parked_and_holding(cluster)
    [machine] = cluster.machines
    machine.inject(step, nth=1, **fault)
    is_in_step(cluster, step, coming=parked, leaving=holder)
    machine.kill_node()
    machine.start()
    go_on(cluster, parked, holder)


def test_an_orchestrator_killed_within_a_hand_off_goes_on_with_it(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[0].inject("restore", nth=1, delay_ms=600)
    is_in_step(cluster, "restore", coming=parked, leaving=holder)
    cluster.kill()
    cluster.start()
    go_on(cluster, parked, holder)


def test_all_programs_killed_within_a_hand_off_go_on_with_it(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    [machine] = cluster.machines
    machine.inject("checkpoint", nth=1, delay_ms=600)
    is_in_step(cluster, "checkpoint", coming=parked, leaving=holder)
    cluster.kill()
    machine.kill_node()
    cluster.start()
    machine.start()
    go_on(cluster, parked, holder)


def test_a_node_killed_right_after_a_hand_off_restores_what_fills_the_device(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    [machine] = cluster.machines
    machine.kill_node()  # before its journal says how much room the parked job came from
    holder.does("check")
    machine.start()
    cluster.waits(parked)
    holder.does("yield")
    go_on(cluster, parked, holder)


def test_a_holder_goes_on_and_yields_while_everything_is_down(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    [machine] = cluster.machines
    cluster.waits(parked)
    cluster.kill()
    machine.kill_node()
    holder.does("check")
    holder.tell("yield")
    cluster.start()
    machine.start()
    assert holder.hears() == "done yield"
    go_on(cluster, parked, holder)


def test_the_next_in_line_is_served_when_the_holder_is_killed(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.waits(parked)
    holder.kill()
    assert parked.hears(within_s=5) == "done acquire"
    parked.does("check", "yield")


def test_a_rank_that_is_killed_holds_nobody_up_although_its_siblings_live(cluster: Cluster) -> None:
    killed, sibling = (cluster.job("job-a", size=1 << 20) for _ in range(2))
    waiter = cluster.job("job-b")
    for rank in (killed, sibling):
        rank.does("acquire", "fill")
    cluster.waits(waiter)
    killed.kill()
    sibling.does("yield")
    assert waiter.hears(within_s=8) == "done acquire"
    waiter.does("yield")


def test_the_next_in_line_is_served_when_the_job_before_ends_without_a_yield(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.waits(parked)
    assert holder.end() == 0
    assert parked.hears(within_s=5) == "done acquire"
    parked.does("check", "yield")


def test_a_job_that_is_killed_while_parked_is_forgotten(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    parked.kill()
    eventually(lambda: [member["job_id"] for member in cluster.group()["members"]] == ["job-b"])
    again = cluster.job("job-a")
    cluster.waits(again)
    holder.does("yield")
    assert again.hears() == "done acquire"
    again.does("fill", "check", "yield")


def test_a_job_that_ends_with_its_state_on_the_device_is_in_nobodys_way(cluster: Cluster) -> None:
    parked, resident = parked_and_holding(cluster)
    resident.does("yield")
    assert resident.end() == 0
    parked.does("acquire", "check", "yield")


def test_a_job_that_dies_while_it_is_being_parked_is_in_nobodys_way(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[0].inject("checkpoint", nth=1, kill_target=True)
    cluster.waits(parked)
    holder.does("yield")
    assert parked.hears(within_s=10) == "done acquire"
    parked.does("check", "yield")
