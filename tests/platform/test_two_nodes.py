"""Jobs that span two machines: a hand-off happens on both or on none."""

from __future__ import annotations

import pytest
from cluster import Cluster, Job
from patience import eventually

MACHINES = 2
pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]


class Ranks:
    """A process of one job on each machine; each asks for itself, and the job holds until the last has yielded."""

    def __init__(self, cluster: Cluster, job_id: str) -> None:
        self._cluster = cluster
        self.job_id = job_id
        self.jobs = [cluster.job(job_id, machine) for machine in range(MACHINES)]

    def does(self, *steps: str) -> None:
        """Steps of all ranks at once, which have to succeed."""
        for step in steps:
            for job in self.jobs:
                job.tell(step)
            assert self.hear() == [f"done {step}"] * MACHINES

    def hear(self) -> list[str]:
        """What each rank answers."""
        return [job.hears() for job in self.jobs]

    def queue_up(self) -> None:
        """All ask, and are in the queue."""
        self._cluster.waits(*self.jobs)

    def states(self) -> list[str]:
        """On each machine."""
        return self._cluster.states(self.job_id)


def parked_and_holding(cluster: Cluster) -> tuple[Ranks, Ranks]:
    """A job that is parked on both machines, and one that holds them."""
    first, second = Ranks(cluster, "job-a"), Ranks(cluster, "job-b")
    first.does("acquire", "fill", "check")
    second.queue_up()
    first.does("yield")
    assert second.hear() == ["done acquire"] * MACHINES
    second.does("fill", "check")
    return first, second


def go_on(holder: Ranks, other: Ranks) -> None:
    """Both jobs find every byte again on both machines."""
    assert holder.hear() == ["done acquire"] * MACHINES
    assert (holder.states(), other.states()) == (["running"] * MACHINES, ["parked"] * MACHINES)
    holder.does("check")
    other.queue_up()
    holder.does("yield")
    assert other.hear() == ["done acquire"] * MACHINES
    other.does("check", "yield")


def told(cluster: Cluster, text: str) -> None:
    eventually(lambda: text in cluster.group()["blocked_reason"])


@pytest.mark.parametrize(("step", "code"), [("lock", 600), ("restore", 909)])
def test_what_fails_on_one_machine_is_undone_on_the_other_and_tried_again(
    cluster: Cluster, step: str, code: int
) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[1].inject(step, nth=1, rc=code)
    parked.queue_up()
    holder.does("yield")
    told(cluster, f"on node-1: cannot {step} process")
    go_on(parked, holder)


def test_a_job_that_cannot_leave_one_machine_stays_whole_on_both(cluster: Cluster) -> None:
    parked, resident = parked_and_holding(cluster)
    cluster.machines[1].inject("checkpoint", pid=resident.jobs[1].process.pid, rc=2)
    parked.queue_up()
    resident.does("yield")
    told(cluster, "job-b on node-1: cannot checkpoint process")
    eventually(lambda: resident.states() == ["running"] * MACHINES)
    assert parked.states() == ["parked"] * MACHINES
    resident.does("check")
    resident.jobs[1].kill()  # the rest of it can leave
    assert parked.hear() == ["done acquire"] * MACHINES
    parked.does("check", "yield")


def test_a_job_that_is_spoilt_on_one_machine_is_refused_and_the_other_job_is_back_on_both(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[1].inject("restore", nth=1, poison=True)
    parked.queue_up()
    holder.does("yield")
    assert all(answer.startswith("failed acquire JobQuarantined") for answer in parked.hear())
    holder.does("acquire", "check")
    assert holder.states() == ["running"] * MACHINES
    assert parked.states() == ["parked", "failed"]


def test_while_a_node_is_down_nobody_is_moved_and_the_hand_off_comes_when_it_is_back(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[1].kill_node()
    parked.queue_up()
    holder.does("yield")
    told(cluster, "node-1 is not connected")
    assert (parked.states(), holder.states()) == (["parked"] * MACHINES, ["running"] * MACHINES)
    holder.does("check")
    cluster.machines[1].start()
    go_on(parked, holder)


@pytest.mark.parametrize("victim", ["node", "orchestrator"])
def test_a_hand_off_that_a_death_cuts_in_half_is_finished(cluster: Cluster, victim: str) -> None:
    parked, holder = parked_and_holding(cluster)
    [machine] = cluster.machines[1:]
    machine.inject("checkpoint", nth=1, delay_ms=800)
    parked.queue_up()
    holder.does("yield")
    eventually(lambda: cluster.machines[0].gpu_state(holder.jobs[0]) == "checkpointed")
    assert machine.gpu_state(holder.jobs[1]) == "locked"
    if victim == "node":
        machine.kill_node()
        machine.start()
    else:
        cluster.kill()
        cluster.start()
    go_on(parked, holder)


def test_a_rank_that_is_killed_while_parked_does_not_keep_the_others_parked(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    parked.jobs[1].kill()
    eventually(lambda: parked.states() == ["parked"])
    left: Job = parked.jobs[0]
    cluster.waits(left)
    holder.does("yield")
    assert left.hears() == "done acquire"
    left.does("check", "yield")
