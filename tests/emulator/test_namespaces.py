"""Jobs in pid namespaces of their own, as in containers."""

import os
import time
from pathlib import Path

import pytest
from gpu_emulator import Emulator
from gpu_emulator.puppet import Puppet, start_job

pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(60),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a pid namespace"),
]

MIB = 1 << 20
# Only /proc becomes private: by default all mounts do, from the root on, and the root of a chroot need not be a mount.
UNSHARE = ["unshare", "--pid", "--fork", "--mount-proc", "--propagation", "unchanged", "--kill-child"]


def test_the_daemon_knows_the_host_pid_of_a_job_in_a_pid_namespace(emulator: Emulator, agent: Puppet) -> None:
    with start_job(emulator, 3 * MIB, prefix=UNSHARE) as job:
        assert job.must("own_pid") == 1
        (process,) = (entry for entry in emulator.snapshot()["processes"] if entry["pid"] != agent.pid)
        pid = process["pid"]
        assert pid not in (1, job.process.pid)
        assert Path(f"/proc/{pid}/task/{process['restore_tid']}").exists()
        assert agent.must("get_restore_tid", pid=pid) == process["restore_tid"]
        for step in ("lock", "checkpoint", "restore", "unlock"):
            agent.must(step, pid=pid)
        assert job.call("device_count") == (0, 1)


def test_a_caller_inside_a_pid_namespace_uses_the_pids_that_it_sees(emulator: Emulator) -> None:
    with start_job(emulator, 3 * MIB, prefix=UNSHARE) as job, start_job(emulator, 3 * MIB) as outside:
        assert job.must("get_state", pid=1) == 0
        assert job.call("get_state", pid=outside.pid)[0] == 1


def test_the_death_of_a_namespace_releases_its_memory(emulator: Emulator) -> None:
    with start_job(emulator, 3 * MIB, prefix=UNSHARE):
        assert emulator.snapshot()["devices"][0]["used"] > 0
    deadline = time.monotonic() + 5
    while emulator.snapshot()["devices"][0]["used"] > 0:  # the kernel kills the namespace after its parent
        assert time.monotonic() < deadline
        time.sleep(0.01)
