"""Job files are the processes' own memory files, and whatever else a process names is none."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from launched_job import Launch
from timeslice_driver.job_files import VARIABLE, JobFiles
from timeslice_driver.processes import ProcFs

pytestmark = [pytest.mark.processes, pytest.mark.timeout(30)]

files = JobFiles(ProcFs())


class Started:
    """Programs that do nothing until the test ends."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack

    def __call__(self, *prefix: str, job_file: str = "", reads: Path | None = None) -> int:
        env = {**os.environ, **({VARIABLE: job_file} if job_file else {})}
        given = self._stack.enter_context(reads.open("rb")) if reads else subprocess.DEVNULL
        command = [*prefix, "sh", "-c", "echo; kill -STOP $$"]
        process = subprocess.Popen(command, env=env, stdin=given, stdout=subprocess.PIPE)
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        assert process.stdout
        self._stack.callback(process.stdout.close)
        process.stdout.readline()
        return process.pid


@pytest.fixture
def started() -> Iterator[Started]:
    with ExitStack() as stack:
        yield Started(stack)


def test_processes_of_one_launch_have_one_key_and_those_of_another_another(started: Started) -> None:
    one, other = Launch(), Launch()
    assert files.key(started(*one.prefix)) == files.key(started(*one.prefix)) == one.key
    assert files.key(started(*other.prefix)) == other.key != one.key


def test_the_file_itself_is_opened_and_can_be_written(started: Started) -> None:
    launch = Launch()
    descriptor = files.opened(started(*launch.prefix), launch.key)
    try:
        status = os.fstat(descriptor)
        assert f"{status.st_dev}:{status.st_ino}" == launch.key
        assert os.write(descriptor, b"state") == 5
    finally:
        os.close(descriptor)


NAMED = [
    *("", "/etc/passwd", "/dev/zero", "/memfd:job", "/proc/1/fd/1", "/proc/self/exe", "/proc/self/fd/0"),
    *("/proc/self/fd/1", "/proc/self/fd/77", "/proc/self/fd/9/../../environ", "/proc/self/fd/", "/proc/self/fd/²"),
    "9" * 100_000,
]


@pytest.mark.parametrize("named", NAMED, ids=lambda named: named[:30])
def test_whatever_else_a_process_names_is_none(started: Started, tmp_path: Path, named: str) -> None:
    (tmp_path / "secret").write_text("as before")
    pid = started(job_file=named, reads=tmp_path / "secret")
    assert files.key(pid) == ""
    for key in ("", "1:2"):
        with pytest.raises(OSError, match=r"No such file|another job file"):
            files.opened(pid, key)


def test_a_process_that_has_ended_has_none() -> None:
    with subprocess.Popen(["true"]) as process:
        pid = process.pid
    assert files.key(pid) == ""
    with pytest.raises(FileNotFoundError):
        files.opened(pid, "1:2")
