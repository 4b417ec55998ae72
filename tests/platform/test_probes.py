"""What went wrong when a comparable system was probed, and goes right here: with real processes, as a user sees it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from cluster import GROUP, Cluster
from patience import eventually
from two_jobs import parked_and_holding

MACHINES = 2
pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]


def test_a_node_that_hangs_in_the_middle_of_a_hand_off_delays_nobody_on_other_nodes(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    elsewhere = [cluster.job(job_id, 1) for job_id in ("job-c", "job-d")]
    for job in elsewhere:
        job.does("acquire", "fill", "yield")
    [node, _] = cluster.machines
    node.inject("checkpoint", nth=1, hang=True)
    cluster.waits(parked)
    holder.does("yield")
    eventually(lambda: node.gpu_state(holder) == "locked")
    os.kill(node.node.process.pid, signal.SIGSTOP)
    try:
        for job in [*elsewhere, *elsewhere]:
            job.does("acquire", "check", "yield")
        assert parked.waits(0.1)
    finally:
        os.kill(node.node.process.pid, signal.SIGCONT)
    assert parked.hears() == "done acquire"
    parked.does("check", "yield")


def test_a_job_that_comes_back_before_anybody_else_asked_moves_nothing(cluster: Cluster) -> None:
    job = cluster.job("job-a")
    job.does("acquire", "fill", "yield")
    before = cluster.group()["totals"]
    for _ in range(5):
        job.does("acquire", "check", "yield")
    after = cluster.group()["totals"]
    assert after["grants"] - before["grants"] == 5
    assert [after.get(key, 0) for key in ("bytes_parked", "bytes_restored")] == [
        before.get(key, 0) for key in ("bytes_parked", "bytes_restored")
    ]


def test_an_acquire_under_a_mistyped_name_is_refused_and_moves_nothing_where_jobs_are_listed(
    cluster: Cluster, tmp_path: Path
) -> None:
    listed = tmp_path / "groups.yaml"
    listed.write_text(f"groups:\n  {GROUP}:\n    jobs: [job-a]\n    devices:\n      node-0: all\n      node-1: all\n")
    cluster.kill()
    cluster.start("--groups", str(listed))
    job, mistyped = cluster.job("job-a"), cluster.job("job-aa")
    job.does("acquire", "fill", "yield")
    mistyped.tell("acquire")
    assert mistyped.hears().startswith("failed acquire JobNotAdmitted: ")
    assert cluster.machines[0].gpu_state(job) == "running"
    assert (cluster.states("job-a"), cluster.group()["waiters"]) == (["running"], [])
    job.does("acquire", "check", "yield")
    cluster.kill()  # the next one has no such list


def test_a_third_job_with_nothing_on_the_device_is_in_nobodys_way_and_is_granted_itself(cluster: Cluster) -> None:
    idle = cluster.job("job-c")
    idle.does("acquire", "yield")
    parked, holder = parked_and_holding(cluster)
    cluster.waits(parked)
    holder.does("yield")
    assert parked.hears(within_s=5) == "done acquire"
    parked.does("check", "yield")
    idle.does("acquire", "fill", "check", "yield")
    parked.does("acquire", "check", "yield")


def test_a_waiter_goes_on_as_soon_as_the_slow_move_before_it_has_ended(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    third = cluster.job("job-c")
    [machine, _] = cluster.machines
    machine.inject("checkpoint", nth=1, delay_ms=2000)
    cluster.waits(parked, third)
    holder.does("yield")
    assert parked.hears() == "done acquire"
    since = time.monotonic()
    parked.does("yield")
    assert third.hears() == "done acquire"
    assert time.monotonic() - since < 2
    third.does("yield")


def test_a_yield_of_what_a_process_does_not_hold_is_an_error_and_changes_nothing(cluster: Cluster) -> None:
    holder, other = cluster.job("job-a"), cluster.job("job-b")
    other.tell("yield")
    assert other.hears().startswith("failed yield NotHolder")
    holder.does("acquire", "fill")
    other.tell("yield")
    assert other.hears().startswith("failed yield NotHolder")
    holder.does("check", "yield")
