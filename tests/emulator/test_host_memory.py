"""Who pays for memory: the daemon for the device, the job for what is parked."""

import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from gpu_emulator import Emulator
from gpu_emulator.puppet import Puppet, start_job

MIB = 1 << 20
V1 = Path("/sys/fs/cgroup/memory")
V2 = Path("/sys/fs/cgroup")


def _parent() -> Path | None:
    if (V1 / "memory.limit_in_bytes").exists() or (V1 / "memory.usage_in_bytes").exists():
        return V1 if os.access(V1, os.W_OK) else None
    control = V2 / "cgroup.subtree_control"
    usable = control.exists() and "memory" in control.read_text() and os.access(V2, os.W_OK)
    return V2 if usable else None


pytestmark = [
    pytest.mark.processes,
    pytest.mark.timeout(60),
    pytest.mark.skipif(_parent() is None, reason="no memory cgroup here may be written"),
]


class MemoryCgroup:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._v1 = folder.parent == V1
        folder.mkdir()

    def limit(self, size: int) -> None:
        (self.folder / ("memory.limit_in_bytes" if self._v1 else "memory.max")).write_text(str(size))

    @property
    def usage(self) -> int:
        return int((self.folder / ("memory.usage_in_bytes" if self._v1 else "memory.current")).read_text())

    def add(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    def remove(self) -> None:
        """Once its last process is reaped, which takes the kernel a moment."""
        deadline = time.monotonic() + 5
        while True:
            try:
                self.folder.rmdir()
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.02)


@pytest.fixture
def cgroup() -> Iterator[MemoryCgroup]:
    parent = _parent()
    assert parent is not None
    made = MemoryCgroup(parent / f"gpu-emulator-{uuid.uuid4().hex}")
    yield made
    made.remove()


def test_device_memory_is_not_charged_to_the_job_and_parked_bytes_are(
    cgroup: MemoryCgroup, emulator: Emulator, agent: Puppet
) -> None:
    with start_job(emulator) as job:
        cgroup.add(job.pid)
        before = cgroup.usage
        pointer = job.must("allocate", size=64 * MIB)
        job.must("set_words", pointer=pointer, value=1, count=16 * MIB)
        assert cgroup.usage - before < 8 * MIB
        agent.must("lock", pid=job.pid)
        agent.must("checkpoint", pid=job.pid)
        assert cgroup.usage - before > 60 * MIB


def test_a_job_whose_cgroup_cannot_hold_the_parked_bytes_is_killed(
    cgroup: MemoryCgroup, emulator: Emulator, agent: Puppet
) -> None:
    with start_job(emulator) as job:
        cgroup.add(job.pid)
        pointer = job.must("allocate", size=128 * MIB)
        job.must("set_words", pointer=pointer, value=1, count=32 * MIB)
        cgroup.limit(cgroup.usage + 32 * MIB)
        agent.must("lock", pid=job.pid)
        assert agent.call("checkpoint", pid=job.pid)[0] == 999
        assert job.process.wait(10) == -9
    assert emulator.snapshot()["devices"][0]["used"] == 0
