"""Which processes carry the mark of a job of this node."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen

import pytest
from timeslice_driver.marks import Mark, Marks
from timeslice_driver.parts import Member
from timeslice_driver.processes import ProcFs

OURS = Path("/run/timeslice/node.sock")
JOB = {"TIMESLICE_JOB_ID": "job-a", "TIMESLICE_GROUP_ID": "trainers"}


@contextmanager
def marked(environ: dict[str, str]) -> Iterator[Mark | None]:
    with Popen(["sleep", "60"], env=environ) as process:
        try:
            while not ProcFs().environ(process.pid, *environ):  # its descriptors are closed a moment before it has one
                time.sleep(0.001)
            yield Marks(ProcFs(), OURS).of(process.pid)
        finally:
            process.kill()


@pytest.mark.parametrize("socket", [None, str(OURS), f"unix://{OURS}", "node.sock"])
def test_a_process_that_names_a_job_and_no_other_node_is_of_this_one(socket: str | None) -> None:
    with marked(JOB | ({} if socket is None else {"TIMESLICE_NODE_SOCKET": socket})) as mark:
        assert mark == Mark("job-a", "trainers")


@pytest.mark.parametrize("socket", ["/tmp/other/node.sock", "unix:///tmp/other/node.sock", ""])
def test_a_job_of_another_node_on_the_machine_or_of_none_is_left_alone(socket: str) -> None:
    with marked(JOB | {"TIMESLICE_NODE_SOCKET": socket}) as mark:
        assert mark is None


def test_a_process_without_a_job_has_no_mark() -> None:
    with marked({"TIMESLICE_GROUP_ID": "trainers"}) as mark:
        assert mark is None


def test_a_mark_without_a_group_fits_each_of_the_jobs_groups() -> None:
    assert Mark("job-a", "").fits(Member("job-a", "samplers"))
    assert not Mark("job-a", "trainers").fits(Member("job-a", "samplers"))
    assert not Mark("job-b", "").fits(Member("job-a", "samplers"))
