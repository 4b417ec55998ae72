"""The checks before a park and a restore, on trees that look like procfs and cgroupfs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from timeslice_driver.backends.base import TargetState
from timeslice_driver.cgroup import CgroupFs
from timeslice_driver.faults import Fault, amount
from timeslice_driver.inventory import Device, DeviceProcess, Memory
from timeslice_driver.parts import Held, Member, Part
from timeslice_driver.preflight import Margins, Preflight
from timeslice_driver.processes import ProcessId, ProcFs

GIB = 1 << 30
GPU = Device("GPU-0", "H100", minor=0, memory_bytes=80 * GIB)
MEMBER = Member("a", "g")


class Machine:
    """A procfs and a cgroupfs made of files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("cgroup/cgroup.controllers", "memory")
        self.write("proc/meminfo", f"MemTotal: {1000 * GIB // 1024} kB\nMemAvailable: {500 * GIB // 1024} kB")

    def write(self, name: str, content: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)

    def process(self, pid: int, *, cgroup: str = "/", state: str = "S") -> ProcessId:
        self.write(f"proc/{pid}/stat", f"{pid} (python) {state} " + " ".join("1" for _ in range(40)))
        self.write(f"proc/{pid}/cgroup", f"0::{cgroup}")
        return ProcessId(pid, 1)

    def limit(self, cgroup: str, *, limit: int, used: int) -> None:
        self.write(f"cgroup{cgroup}/memory.max", str(limit))
        self.write(f"cgroup{cgroup}/memory.current", str(used))

    def checks(self, *, margins: Margins | None = None, require_persistence: bool = True) -> Preflight:
        return Preflight(
            ProcFs(self.root / "proc"),
            CgroupFs(self.root / "cgroup"),
            margins=margins or Margins(cgroup=GIB, node=2 * GIB, device=GIB),
            require_persistence=require_persistence,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def part(*held: Held, member: Member = MEMBER, room: dict[str, int] | None = None) -> Part:
    return Part(member, ("GPU-0",), held={each.process: each for each in held}, room=room or {})


def running(process: ProcessId, size: int) -> Held:
    return Held(process, TargetState.RUNNING, {"GPU-0": size})


def parked(process: ProcessId, size: int) -> Held:
    return Held(process, TargetState.CHECKPOINTED, {"GPU-0": size})


def only(refused: dict[Member, Fault]) -> Fault:
    assert list(refused) == [MEMBER]
    return refused[MEMBER]


def test_enough_memory_everywhere_is_no_reason_to_refuse(machine: Machine) -> None:
    machine.limit("/pod", limit=100 * GIB, used=10 * GIB)
    job = part(running(machine.process(7, cgroup="/pod/job"), 80 * GIB))
    assert machine.checks().before_park([job], [GPU]) == {}


@pytest.mark.parametrize("tight", ["/pod", "/pod/job", "/pod/job/main"])
def test_the_tightest_of_a_processs_cgroups_is_named_with_its_numbers(machine: Machine, tight: str) -> None:
    for cgroup in ("/pod", "/pod/job", "/pod/job/main"):
        machine.limit(cgroup, limit=200 * GIB, used=10 * GIB)
    machine.limit(tight, limit=90 * GIB, used=10 * GIB)
    job = part(running(machine.process(7, cgroup="/pod/job/main"), 80 * GIB))
    fault = only(machine.checks().before_park([job], [GPU]))
    assert fault.reason == "HostMemory"
    assert fault.message == (
        f"parking needs 80.0 GiB of host memory and 1.0 GiB to spare; cgroup {machine.root}/cgroup{tight} has 80.0 GiB "
        "free of its limit of 90.0 GiB"
    )
    assert not fault.retryable
    assert "raise the memory limit" in fault.hint


def test_processes_that_share_a_cgroup_need_room_for_the_sum(machine: Machine) -> None:
    machine.limit("/pod", limit=100 * GIB, used=0)
    first, second = machine.process(7, cgroup="/pod/a"), machine.process(8, cgroup="/pod/b")
    other = Member("b", "g")
    jobs = [part(running(first, 60 * GIB)), part(running(second, 60 * GIB), member=other)]
    refused = machine.checks().before_park(jobs, [GPU])
    assert set(refused) == {MEMBER, other}
    assert "parking needs 120.0 GiB" in refused[MEMBER].message
    assert machine.checks().before_park(jobs[:1], [GPU]) == {}


def test_what_is_parked_already_needs_no_room_again(machine: Machine) -> None:
    machine.limit("/pod", limit=100 * GIB, used=90 * GIB)
    process = machine.process(7, cgroup="/pod")
    assert machine.checks().before_park([part(parked(process, 80 * GIB))], [GPU]) == {}


def test_the_memory_of_the_node_counts_where_no_cgroup_limits(machine: Machine) -> None:
    machine.write("proc/meminfo", f"MemTotal: {100 * GIB // 1024} kB\nMemAvailable: {81 * GIB // 1024} kB")
    fault = only(machine.checks().before_park([part(running(machine.process(7), 80 * GIB))], [GPU]))
    assert fault.reason == "HostMemory"
    assert fault.message.endswith("parking needs 80.0 GiB of host memory and 2.0 GiB to spare; the node has 81.0 GiB")


def test_the_margin_of_a_small_node_is_a_twentieth_of_its_memory(machine: Machine) -> None:
    machine.write("proc/meminfo", f"MemTotal: {4 * GIB // 1024} kB\nMemAvailable: {GIB // 1024} kB")
    checks = machine.checks(margins=Margins())
    job = running(machine.process(7), GIB - (300 << 20))
    assert checks.before_park([part(job)], [GPU]) == {}
    assert only(checks.before_park([part(replace(job, sizes={"GPU-0": GIB - (100 << 20)}))], [GPU]))


def test_a_frozen_cgroup_is_refused_for_parks_and_restores(machine: Machine) -> None:
    process = machine.process(7, cgroup="/pod/job")
    machine.write("cgroup/pod/cgroup.freeze", "1\n")
    checks = machine.checks()
    fault = only(checks.before_park([part(running(process, 1))], [GPU]))
    assert (fault.reason, fault.retryable) == ("FrozenCgroup", True)
    assert f"{machine.root}/cgroup/pod is frozen" in fault.message
    memory = {"GPU-0": Memory(total=80 * GIB, free=80 * GIB, used=0)}
    assert only(checks.before_restore([part(parked(process, 1))], memory, tuple)).reason == "FrozenCgroup"


@pytest.mark.parametrize("state", ["T", "t"])
def test_a_stopped_or_traced_process_is_refused(machine: Machine, state: str) -> None:
    fault = only(machine.checks().before_park([part(running(machine.process(7, state=state), 1))], [GPU]))
    assert fault.reason == "ProcessStopped"
    assert "kill -CONT 7" in fault.hint


def test_modes_of_other_devices_do_not_matter(machine: Machine) -> None:
    job = part(running(machine.process(7), 1))
    other = replace(GPU, device_id="GPU-1", mig=True, persistent=False)
    assert machine.checks().before_park([job], [GPU, other]) == {}
    assert only(machine.checks().before_park([job], [replace(GPU, mig=True)])).reason == "MigEnabled"


def test_persistence_mode_may_be_left_to_the_operator(machine: Machine) -> None:
    job, volatile = part(running(machine.process(7), 1)), replace(GPU, persistent=False)
    assert only(machine.checks().before_park([job], [volatile])).reason == "PersistenceOff"
    assert machine.checks(require_persistence=False).before_park([job], [volatile]) == {}


def test_a_client_of_mps_is_refused(machine: Machine) -> None:
    job = part(running(machine.process(7), 1))
    assert only(machine.checks().before_park([job], [GPU], mps_clients={7})).reason == "MpsClient"
    assert machine.checks().before_park([job], [GPU], mps_clients={8}) == {}


@pytest.mark.parametrize(
    ("free", "size", "room", "refused"),
    [
        (41, 40, None, False),
        (40, 40, None, True),  # the margin is missing
        (40, 40, 40, False),  # but from there it came
        (39, 40, 40, True),
        (80, 40, 10, False),
    ],
)
def test_a_restore_needs_its_bytes_and_a_margin_or_the_room_it_came_from(
    machine: Machine, free: int, size: int, room: int | None, refused: bool
) -> None:
    job = part(parked(machine.process(7), size * GIB), room={} if room is None else {"GPU-0": room * GIB})
    memory = {"GPU-0": Memory(total=80 * GIB, free=free * GIB, used=(80 - free) * GIB)}
    others = (DeviceProcess(9, "GPU-0", 30 * GIB), DeviceProcess(10, "GPU-0", None), DeviceProcess(7, "GPU-0", 1))
    found = machine.checks().before_restore([job], memory, lambda: others)
    assert bool(found) is refused
    if refused:
        fault = only(found)
        assert (fault.reason, fault.retryable) == ("DeviceMemory", True)
        assert fault.message == (
            f"the restore needs {size}.0 GiB on GPU-0, where {free}.0 GiB of 80.0 GiB are free; "
            "on it: process 9 with 30.0 GiB, process 10 with unknown"
        )


@pytest.mark.parametrize(("free", "refused"), [(79, False), (78, False), (77, True)])
def test_a_restore_onto_a_device_of_its_own_needs_no_margin_beyond_its_bytes(
    machine: Machine, free: int, refused: bool
) -> None:
    job = part(parked(machine.process(7), 78 * GIB))  # its node died before it wrote down the room that this came from
    memory = {"GPU-0": Memory(total=80 * GIB, free=free * GIB, used=(80 - free) * GIB)}
    own = DeviceProcess(7, "GPU-0", 1)
    found = machine.checks().before_restore([job], memory, lambda: [own])
    assert [fault.message for fault in found.values()] == refused * [
        "the restore needs 78.0 GiB on GPU-0, where 77.0 GiB of 80.0 GiB are free"
    ]


def test_when_the_size_is_not_known_nobody_else_may_be_on_the_device(machine: Machine) -> None:
    job = part(parked(machine.process(7), -1))
    memory = {"GPU-0": Memory(total=80 * GIB, free=79 * GIB, used=GIB)}
    assert machine.checks().before_restore([job], memory, tuple) == {}
    other = DeviceProcess(9, "GPU-0", GIB)
    assert only(machine.checks().before_restore([job], memory, lambda: [other])).reason == "DeviceMemory"


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 << 20, "5.0 MiB"), (3 << 30, "3.0 GiB")]
)
def test_sizes_are_told_in_words_for_people(size: int, words: str) -> None:
    assert amount(size) == words
