"""Faults of the GPU in the middle of a hand-off, and host memory that is too small."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from cluster import Cluster, started_cluster
from embedded import timeslice
from patience import eventually
from two_jobs import go_on, parked_and_holding

MACHINES = 1
pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]
RETRYABLE = {"lock": 600, "checkpoint": 909, "restore": 909}  # not ready, and a driver that gave up


@pytest.mark.parametrize("step", RETRYABLE)
def test_a_step_that_fails_once_leaves_the_other_job_able_to_go_on_and_is_tried_again(
    cluster: Cluster, step: str
) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[0].inject(step, nth=1, rc=RETRYABLE[step])
    cluster.waits(parked)
    holder.does("yield")
    eventually(lambda: f"cannot {step} process" in cluster.group()["blocked_reason"])
    go_on(cluster, parked, holder)


def test_a_job_that_cannot_be_parked_is_as_it_was_and_the_waiter_is_told_why(cluster: Cluster) -> None:
    parked, resident = parked_and_holding(cluster)
    cluster.machines[0].inject("checkpoint", pid=resident.process.pid, rc=2)
    cluster.waits(parked)
    resident.does("yield")
    eventually(lambda: f"cannot checkpoint process {resident.process.pid}" in cluster.group()["blocked_reason"])
    eventually(lambda: cluster.machines[0].gpu_state(resident) == "running")
    resident.does("check")
    assert cluster.states("job-a") == ["parked"]
    resident.kill()  # whatever it was, it is out of the way now
    assert parked.hears(within_s=5) == "done acquire"
    parked.does("check", "yield")


def test_a_job_whose_restore_spoils_it_is_refused_with_the_reason_and_the_others_are_served(cluster: Cluster) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[0].inject("restore", nth=1, poison=True)
    cluster.waits(parked)
    holder.does("yield")
    answer = parked.hears()
    assert answer.startswith("failed acquire JobQuarantined: job-a in trainer-group: ")
    assert f"process {parked.process.pid} of job job-a in group trainer-group can neither be parked nor" in answer
    holder.does("acquire", "check", "yield")
    parked.tell("acquire")
    assert parked.hears().startswith("failed acquire JobQuarantined")
    reset = timeslice("reset", "job-a", "--orchestrator", cluster.address)
    assert reset.returncode == 1
    assert "job-a stays in quarantine in trainer-group: process" in reset.stderr
    parked.kill()
    eventually(lambda: cluster.states("job-a") == [])
    again = cluster.job("job-a")
    again.does("acquire", "fill", "check", "yield")
    holder.does("acquire", "check", "yield")


def test_a_job_whose_state_the_driver_calls_sound_again_is_reset_by_an_admin_and_finds_its_bytes(
    cluster: Cluster,
) -> None:
    parked, holder = parked_and_holding(cluster)
    cluster.machines[0].inject("restore", nth=1, rc=909)
    cluster.machines[0].inject("get_state", pid=parked.process.pid, rc=999)
    cluster.waits(parked)
    holder.does("yield")
    assert parked.hears().startswith("failed acquire JobQuarantined: job-a in trainer-group: ")
    refused = timeslice("reset", "job-a", "--orchestrator", cluster.address)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "job-a stays in quarantine in trainer-group: the driver does not tell the state of" in refused.stderr
    cluster.machines[0].emulator.clear_faults()
    reset = timeslice("reset", "job-a", "--orchestrator", cluster.address)
    assert (reset.returncode, reset.stdout, reset.stderr) == (0, "job-a takes part again in trainer-group\n", "")
    assert cluster.states("job-a") == ["parked"]
    parked.does("acquire", "check", "yield")
    holder.does("acquire", "check", "yield")


def test_a_waiter_is_told_how_much_host_memory_the_park_before_it_lacks() -> None:
    with tempfile.TemporaryDirectory(prefix="ts-") as name:
        limits = Path(name, "cgroup")
        limits.mkdir()
        with started_cluster(Path(name), "node-0", cgroup_root=limits) as cluster:
            parked, holder = parked_and_holding(cluster)
            limit_memory(limits, limit=100 << 20, used=20 << 20)
            cluster.waits(parked)
            holder.does("yield")
            lacking = f"parking needs 30.0 MiB of host memory and 64.0 MiB to spare; cgroup {limits}"
            eventually(lambda: lacking in cluster.group()["blocked_reason"])
            assert "has 80.0 MiB free of its limit of 100.0 MiB" in cluster.group()["blocked_reason"]
            holder.does("check")  # it was not touched
            holder.kill()  # the memory that it would have needed is of no matter any more
            assert parked.hears(within_s=5) == "done acquire"
            parked.does("check", "yield")


def limit_memory(root: Path, *, limit: int, used: int) -> None:
    """Of the root, so of every process, whatever the layout of this machine."""
    if any(line.startswith("0::") for line in Path("/proc/self/cgroup").read_text().splitlines()):
        (root / "cgroup.controllers").touch()
        folder, names = root, ("memory.max", "memory.current")
    else:
        folder, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
    folder.mkdir(exist_ok=True)
    for file, value in zip(names, (limit, used), strict=True):
        (folder / file).write_text(str(value))
