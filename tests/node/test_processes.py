from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from timeslice_driver.processes import ProcessId, ProcFs, parse_stat

procfs = ProcFs()


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"], env={"TIMESLICE_JOB_ID": "j", "ODD": "a=b"}) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("command", ["python", "a b", "x) R 1 (y", ")))", ""])
def test_the_command_in_a_stat_line_may_hold_anything(command: str) -> None:
    rest = "S 7 9 11 0 -1 " + " ".join(str(number) for number in range(12)) + " 4242 99"
    tail = rest.split()
    tail[19] = "123456"
    stat = parse_stat(f"815 ({command}) {' '.join(tail)}".encode())
    assert stat.identity == ProcessId(815, 123456)
    assert (stat.state, stat.parent, stat.session) == ("S", 7, 11)


@pytest.mark.parametrize(("state", "ended", "stopped"), [("R", False, False), ("Z", True, False), ("T", False, True)])
def test_zombies_have_ended_and_stopped_processes_are_told_apart(state: str, ended: bool, stopped: bool) -> None:
    stat = parse_stat(f"1 (x) {state} {' '.join('0' * 30)}".encode())
    assert (stat.ended, stat.stopped) == (ended, stopped)


def test_a_thread_is_no_process() -> None:
    numbers: list[int] = []
    release, started = threading.Event(), threading.Event()

    def run() -> None:
        numbers.append(threading.get_native_id())
        started.set()
        release.wait(5)

    thread = threading.Thread(target=run)
    thread.start()
    started.wait(5)
    try:
        assert Path(f"/proc/{numbers[0]}").exists()  # the kernel would take it
        assert procfs.identity(numbers[0]) is None
    finally:
        release.set()
        thread.join()


def test_a_name_that_reads_like_lines_of_the_status_file_is_no_more_than_a_name() -> None:
    code = "import ctypes, time; ctypes.CDLL(None).prctl(15, b'\\rTgid:\\t1'); print(flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout
            process.stdout.readline()
            assert b"\rTgid:\t1" in Path(f"/proc/{process.pid}/status").read_bytes()  # the kernel lets it
            identity = procfs.identity(process.pid)
            assert identity
            assert identity.pid == process.pid
        finally:
            process.kill()


def test_a_number_given_to_another_process_is_another_identity(sleeper: subprocess.Popen[bytes]) -> None:
    identity = procfs.identity(sleeper.pid)
    assert identity
    assert procfs.alive(identity)
    assert not procfs.alive(ProcessId(identity.pid, identity.start_time + 1))


def test_a_process_that_has_exited_is_dead_before_its_parent_notices() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        stat = procfs.stat(process.pid)
        assert stat
        assert stat.ended
        assert procfs.identity(process.pid) is None
        assert not procfs.alive(stat.identity)


def test_the_environment_is_read_as_the_process_was_started_with(sleeper: subprocess.Popen[bytes]) -> None:
    assert procfs.environ(sleeper.pid, "ODD", "TIMESLICE_JOB_ID", "JOB_ID", "MISSING") == {
        "TIMESLICE_JOB_ID": "j",
        "ODD": "a=b",
    }


# By prctl(2) with struct prctl_mm_map, for which nobody needs a right.
BOASTER = """
import ctypes, mmap, struct, sys, time
libc, size = ctypes.CDLL(None), 1 << 30
memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000)
memory[:8] = b"X=first\\0"
begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
state, *numbers = open("/proc/self/stat").read().rpartition(")")[2].split()
fields = [0, *map(int, numbers)]  # the first is the third of proc_pid_stat(5)
code, data, brk, arguments = fields[23:25], fields[42:44], fields[44], fields[45:47]
layout = struct.pack("12QIi", *code, *data, brk, brk, fields[25], *arguments, begin, begin + size, 0, 0, -1)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
buffer = ctypes.create_string_buffer(layout)
print(libc.prctl(35, 14, ctypes.addressof(buffer), len(layout), 0), flush=True)
time.sleep(60)
"""


def test_a_process_that_says_all_of_its_memory_is_its_environment_is_not_read_to_the_end() -> None:
    with subprocess.Popen([sys.executable, "-c", BOASTER], stdout=subprocess.PIPE, text=True) as boaster:
        try:
            assert boaster.stdout
            assert boaster.stdout.readline() == "0\n", "the kernel lets it say so"
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            assert procfs.environ(boaster.pid, "X", "Y") == {"X": "first"}
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10  # KiB
        finally:
            boaster.kill()


def test_a_family_is_the_roots_and_all_their_living_descendants() -> None:
    script = "import subprocess,sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        try:
            roots = [procfs.identity(parent.pid)]
            family = procfs.family(root for root in roots if root)
            assert {process.pid for process in family} == {parent.pid, child}
            assert child in procfs.children(parent.pid)
        finally:
            os.kill(child, 9)


def test_children_of_a_thread_are_children_of_its_process() -> None:
    script = (
        "import subprocess,threading; "
        "t = threading.Thread(target=lambda: [print(subprocess.Popen(['sleep','60']).pid, flush=True), e.wait()]); "
        "e = threading.Event(); t.start(); input(); e.set()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        child = int(parent.stdout.readline())
        try:
            assert child in procfs.children(parent.pid)
        finally:
            os.kill(child, 9)
            parent.communicate(b"\n", timeout=5)


def test_open_files_are_named(sleeper: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with (tmp_path / "nvidia0").open("w"):
        opened = procfs.open_files(os.getpid())
    assert opened
    assert str(tmp_path / "nvidia0") in opened


def test_a_process_that_does_not_exist_has_nothing() -> None:
    missing = 2**22 + 1
    assert procfs.stat(missing) is None
    assert procfs.identity(missing) is None
    assert procfs.cgroup(missing) == ""
    assert procfs.environ(missing, "X") == {}
    assert procfs.open_files(missing) == frozenset()
    assert procfs.capabilities(missing) == 0


def test_the_machine_tells_its_boot_and_memory() -> None:
    assert len(procfs.boot_id()) == 36
    assert 0 < procfs.available_memory() <= procfs.total_memory()
    assert procfs.total_swap() >= 0
    assert os.getpid() in procfs.pids()
