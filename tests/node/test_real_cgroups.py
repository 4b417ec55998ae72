"""Pods in control groups of the kernel's own: their processes are found there, and their limits bind."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World, cuda_state
from pod_world import ClaimWorld, Pod
from timeslice_driver.backends.cuda import Limits
from timeslice_driver.preflight import Margins

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]
JOB_A = {"TIMESLICE_JOB_ID": "job-a"}
ROOT = Path("/sys/fs/cgroup")
V2 = (ROOT / "cgroup.controllers").exists()
LIMIT = "memory.max" if V2 else "memory.limit_in_bytes"
USED = "memory.current" if V2 else "memory.usage_in_bytes"
KILLED = "memory.events" if V2 else "memory.oom_control"
SIZE = 24 * MIB  # of a job on the device


@pytest.fixture
def options() -> dict[str, Any]:
    return {"memory": 128 * MIB}


@pytest.fixture
def hierarchy() -> Iterator[Path]:
    """A cgroup of the test's own, where memory is counted; everything in it is removed afterwards."""
    made = (ROOT if V2 else ROOT / "memory") / f"timeslice-test-{os.getpid()}-{time.monotonic_ns()}"
    try:
        made.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made here: {error}")
    yield made
    for folder in [Path(path) for path, _, _ in os.walk(made, topdown=False)]:
        for pid in (folder / "cgroup.procs").read_text().split():
            with suppress(OSError):  # it has ended
                (made.parent / "cgroup.procs").write_text(pid)
        folder.rmdir()


@pytest.fixture
async def kube(world: World) -> AsyncIterator[ClaimWorld]:
    made = ClaimWorld(world, cgroup_root=ROOT)
    # Copies are real here, and a busy machine may take its time.
    await made.start(limits=Limits(), margins=Margins(node=0))
    yield made
    await made.stop()


def limit(pod: Pod, size: int) -> None:
    for folder in (pod.folder, *pod.folder.parents):
        if V2 and folder.parent != ROOT.parent:
            with suppress(OSError):  # it is on already, or the machine's manager does not allow it
                (folder.parent / "cgroup.subtree_control").write_text("+memory")
    if not (pod.folder / LIMIT).exists():
        pytest.skip("memory is not counted in this machine's cgroups")
    (pod.folder / LIMIT).write_text(str(size))


async def running(kube: ClaimWorld) -> int:
    """How many processes the part has, once it is on the device."""
    async with asyncio.timeout(10):
        while True:
            for part in (await kube.orchestrator.report()).parts:
                if NAMES[part.state] == "RUNNING":
                    return int(part.processes)


@pytest.mark.parametrize(
    "layout",
    ["kubepods/burstable/pod{uid}", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{flat}.slice"],
)
async def test_processes_of_a_pod_and_their_children_are_found_and_parked(
    kube: ClaimWorld, jobs: Jobs, hierarchy: Path, layout: str
) -> None:
    pod, job = Pod(hierarchy, layout=layout), jobs(4 * MIB, env=JOB_A)
    pod.put(job.pid)
    nested = pod.folder / "main" / "nested"
    nested.mkdir()
    enter = f"echo $$ > {nested}/cgroup.procs && echo in && exec sleep 60"
    child = await asyncio.create_subprocess_exec("sh", "-c", enter, env={}, stdout=asyncio.subprocess.PIPE)
    assert child.stdout
    assert await child.stdout.readline() == b"in\n"
    await kube.prepare(pod)
    assert await running(kube) == 2
    result = await kube.orchestrator.command({("job-a", "trainers"): "PARKED"})
    assert [NAMES[part.state] for part in result.parts] == ["PARKED"]
    child.kill()
    await child.wait()


async def test_a_pods_memory_limit_too_small_for_its_snapshot_is_a_refusal_that_names_it(
    kube: ClaimWorld, jobs: Jobs, hierarchy: Path
) -> None:
    pod, job = Pod(hierarchy), jobs(60 * MIB, env=JOB_A)
    limit(pod, 40 * MIB)
    pod.put(job.pid)
    await kube.prepare(pod)
    await running(kube)
    result = await kube.orchestrator.command({("job-a", "trainers"): "PARKED"})
    fault = result.parts[0].fault
    assert fault.reason == "HostMemory"
    assert f"cgroup {pod.folder} has" in fault.message
    assert "free of its limit of 40.0 MiB" in fault.message
    assert cuda_state(kube.world.emulator, job.pid) == "RUNNING"
    limit(pod, 400 * MIB)
    result = await kube.orchestrator.command({("job-a", "trainers"): "PARKED"}, token=2)
    assert [NAMES[part.state] for part in result.parts] == ["PARKED"]


def used(pod: Pod) -> int:
    """What counts against the limit, in the way of the kernel."""
    return int((pod.folder / USED).read_text())


def killed(pod: Pod) -> int:
    """How many processes the kernel has killed for want of memory."""
    told = dict(line.split() for line in (pod.folder / KILLED).read_text().splitlines())
    return int(told["oom_kill"])


async def test_a_limit_driven_to_the_edge_of_a_snapshot_refuses_it_or_holds_it_and_nobody_is_killed(
    kube: ClaimWorld, jobs: Jobs, hierarchy: Path
) -> None:
    pod, job = Pod(hierarchy), jobs(env=JOB_A)
    limit(pod, 400 * MIB)
    pod.put(job.pid)
    job.must("fill", pointer=job.must("allocate", size=SIZE), size=SIZE, seed=7)
    await kube.prepare(pod)
    await running(kube)
    margin, member = Margins().cgroup, ("job-a", "trainers")
    outcomes = []
    for token, beyond in enumerate((-8, -2, -1, 0, 1, 2, 4, 8), start=1):
        limit(pod, used(pod) + SIZE + margin + beyond * MIB)
        [part] = (await kube.orchestrator.command({member: "PARKED"}, token=token)).parts
        outcomes.append(NAMES[part.state])
        assert part.fault.reason == ("" if outcomes[-1] == "PARKED" else "HostMemory")
        limit(pod, 400 * MIB)
        [part] = (await kube.orchestrator.command({member: "RUNNING"}, token=token)).parts
        assert NAMES[part.state] == "RUNNING"
    assert (outcomes[0], outcomes[-1]) == ("RUNNING", "PARKED")
    assert killed(pod) == 0
    assert job.process.poll() is None


async def test_memory_that_goes_between_the_check_and_the_copy_is_seen_and_the_job_goes_on(
    kube: ClaimWorld, jobs: Jobs, hierarchy: Path
) -> None:
    pod, job = Pod(hierarchy), jobs(SIZE, env=JOB_A)
    limit(pod, 400 * MIB)
    pod.put(job.pid)
    await kube.prepare(pod)
    await running(kube)
    size = 100 * MIB
    grows = f"import sys; sys.stdin.read(1); block = b'x' * {size}; print(len(block), flush=True); sys.stdin.read()"
    pipe = asyncio.subprocess.PIPE
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", grows, env={}, stdin=pipe, stdout=pipe)
    assert other.stdin
    assert other.stdout
    pod.put(other.pid)
    limit(pod, used(pod) + SIZE + Margins().cgroup + 60 * MIB)  # room for the one, or for the other
    kube.world.emulator.inject(Fault("lock", delay_ms=1500))
    parking = asyncio.create_task(kube.orchestrator.command({("job-a", "trainers"): "PARKED"}, lock_s=10))
    await asyncio.sleep(0.5)  # it has been checked, and is being locked
    other.stdin.write(b"!")
    assert await other.stdout.readline() == f"{size}\n".encode()
    [part] = (await parking).parts
    assert (NAMES[part.state], part.fault.reason) == ("RUNNING", "HostMemory")
    assert cuda_state(kube.world.emulator, job.pid) == "RUNNING"
    assert killed(pod) == 0
    other.kill()
    await other.wait()
