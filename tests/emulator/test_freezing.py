"""A target whose restore thread cannot run: stopped by a signal, or frozen with its cgroup (CRIU issue 2775)."""

import contextlib
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from gpu_emulator.puppet import Puppet

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

Switch = Callable[[bool], None]


def park(agent: Puppet, job: Puppet) -> None:
    agent.must("lock", pid=job.pid)
    agent.must("checkpoint", pid=job.pid)


def stop(job: Puppet) -> None:
    """Returns when every thread stands still: until then one of them may still answer."""
    os.kill(job.pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{job.pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] != "T" for task in tasks.iterdir()):
        time.sleep(0.01)


def test_a_restore_waits_while_the_target_is_stopped(job: Puppet, agent: Puppet) -> None:
    park(agent, job)
    stop(job)
    restoring = agent.begin("restore", pid=job.pid, apart=True)
    assert agent.is_blocked(restoring)
    assert agent.must("get_state", pid=job.pid) == 2
    os.kill(job.pid, signal.SIGCONT)
    assert agent.finish(restoring)[0] == 0


def test_a_lock_of_a_stopped_target_runs_out_of_time_and_leaves_it_running(job: Puppet, agent: Puppet) -> None:
    stop(job)
    assert agent.call("lock", pid=job.pid, timeout_ms=100)[0] == 600
    os.kill(job.pid, signal.SIGCONT)
    assert job.call("device_count") == (0, 1)
    assert agent.must("get_state", pid=job.pid) == 0


def _writable(root: str, marker: str) -> Path | None:
    folder = Path(root)
    return folder if (folder / marker).exists() and os.access(folder, os.W_OK) else None


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@contextlib.contextmanager
def frozen_cgroup(pid: int) -> Iterator[Switch]:
    """A new cgroup around the process and a switch that freezes and thaws it, in whichever version can be written."""
    v1 = _writable("/sys/fs/cgroup/freezer", "cgroup.procs")
    v2 = _writable("/sys/fs/cgroup", "cgroup.subtree_control") or _writable("/sys/fs/cgroup/unified", "cgroup.procs")
    parent = v1 or v2
    assert parent is not None
    folder = parent / f"gpu-emulator-{uuid.uuid4().hex}"
    folder.mkdir()
    control = folder / ("freezer.state" if v1 else "cgroup.freeze")

    def switch(frozen: bool) -> None:
        if v1:
            control.write_text("FROZEN" if frozen else "THAWED")
            _wait_until(lambda: control.read_text().strip() == ("FROZEN" if frozen else "THAWED"))
        else:
            control.write_text(str(int(frozen)))
            _wait_until(lambda: f"frozen {int(frozen)}" in (folder / "cgroup.events").read_text())

    try:
        (folder / "cgroup.procs").write_text(str(pid))
        yield switch
    finally:
        switch(False)
        (parent / "cgroup.procs").write_text(str(pid))
        folder.rmdir()


def _cgroups_are_writable() -> bool:
    places = [("/sys/fs/cgroup/freezer", "cgroup.procs"), ("/sys/fs/cgroup", "cgroup.subtree_control")]
    return any(_writable(*place) for place in [*places, ("/sys/fs/cgroup/unified", "cgroup.procs")])


@pytest.mark.skipif(not _cgroups_are_writable(), reason="no cgroup here may be written; SIGSTOP is tested above")
def test_a_restore_waits_while_the_cgroup_of_the_target_is_frozen(job: Puppet, agent: Puppet) -> None:
    park(agent, job)
    with frozen_cgroup(job.pid) as freeze:
        freeze(True)
        restoring = agent.begin("restore", pid=job.pid, apart=True)
        assert agent.is_blocked(restoring)
        freeze(False)
        assert agent.finish(restoring)[0] == 0
        agent.must("unlock", pid=job.pid)
