"""What happens to the group when a process is interrupted, killed, forked, or ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from fake_orchestrator import FakeOrchestrator
from patience import eventually
from timeslice import OrchestratorClient

pytestmark = [pytest.mark.processes, pytest.mark.timeout(30)]

PRELUDE = """
import os, signal, sys, time
from timeslice import *
client = OrchestratorClient()
"""


class Job:
    """A process that runs a piece of code with a client, and says where it is by lines on its standard output."""

    def __init__(self, fake: FakeOrchestrator, code: str, **env: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", PRELUDE + code],
            env={
                **os.environ,
                "TIMESLICE_ORCHESTRATOR": fake.address,
                "TIMESLICE_JOB_ID": "job-a",
                "TIMESLICE_GROUP_ID": "g",
                **env,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def reads(self, line: str) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == line

    def ends(self, status: int) -> str:
        """Waits for the end; returns standard error."""
        out, err = self.process.communicate(timeout=20)
        assert self.process.returncode == status, f"{out}\n{err}"
        return err


@pytest.fixture
def jobs(fake: FakeOrchestrator) -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.process.kill()
        job.process.communicate()


def test_ctrl_c_during_acquire_leaves_no_ghost(
    fake: FakeOrchestrator, other: OrchestratorClient, jobs: list[Job]
) -> None:
    other.acquire("g")
    jobs.append(
        job := Job(
            fake,
            """
try:
    print("asking", flush=True)
    client.acquire()
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.stdin.read()
""",
        )
    )
    job.reads("asking")
    eventually(lambda: fake.waiters == ["job-a"])
    job.process.send_signal(signal.SIGINT)
    job.reads("interrupted")
    assert fake.waiters == []
    job.ends(0)
    other.yield_("g")
    assert fake.holders == []


def test_ctrl_c_in_the_body_gives_back(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(job := Job(fake, "with client.on_accelerators():\n  print('in', flush=True)\n  time.sleep(20)"))
    job.reads("in")
    job.process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in job.ends(-signal.SIGINT)
    assert fake.holders == []


def test_a_killed_waiter_leaves_the_queue(fake: FakeOrchestrator, other: OrchestratorClient, jobs: list[Job]) -> None:
    other.acquire("g")
    jobs.append(job := Job(fake, "client.acquire()"))
    eventually(lambda: fake.waiters == ["job-a"])
    job.process.kill()
    eventually(lambda: fake.waiters == [])


def test_a_killed_holder_renews_no_more_so_its_lease_runs_out(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(job := Job(fake, "client.acquire(); print('in', flush=True); time.sleep(20)"))
    job.reads("in")
    eventually(lambda: fake.methods("KeepAlive"))
    job.process.kill()
    job.process.wait()
    sent = len(fake.methods("KeepAlive"))
    time.sleep(fake.ttl_s / 2)
    assert len(fake.methods("KeepAlive")) == sent


def test_the_end_of_a_process_gives_back_what_it_holds(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(job := Job(fake, "client.acquire()"))
    job.ends(0)
    assert fake.holders == []
    assert len(fake.methods("Yield")) == 1


def test_the_end_of_a_process_takes_three_seconds_at_most_when_nobody_answers(
    fake: FakeOrchestrator, jobs: list[Job]
) -> None:
    jobs.append(job := Job(fake, "client.acquire(); print('in', flush=True); input()"))
    job.reads("in")
    fake.stop()
    began = time.monotonic()
    job.ends(1)  # EOF on standard input
    assert time.monotonic() - began < 5


def test_sigterm_unwinds_when_the_handlers_are_installed(
    fake: FakeOrchestrator, other: OrchestratorClient, jobs: list[Job]
) -> None:
    code = "install_signal_handlers()\nwith client.on_accelerators():\n  print('in', flush=True)\n  time.sleep(20)"
    jobs.append(holder := Job(fake, code))
    holder.reads("in")
    holder.process.terminate()
    holder.ends(128 + signal.SIGTERM)
    assert fake.holders == []
    other.acquire("g")
    jobs.append(waiter := Job(fake, code))
    eventually(lambda: fake.waiters == ["job-a"])
    waiter.process.terminate()
    waiter.ends(128 + signal.SIGTERM)
    assert fake.waiters == []


def test_sigterm_leaves_a_frameworks_own_handler_alone(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(
        job := Job(
            fake,
            """
signal.signal(signal.SIGTERM, lambda *_: (print("saving", flush=True), sys.exit(7)))
install_signal_handlers()
with client.on_accelerators():
    print("in", flush=True)
    time.sleep(20)
""",
        )
    )
    job.reads("in")
    job.process.terminate()
    job.reads("saving")
    job.ends(7)
    assert fake.holders == []


def test_a_forked_child_that_gets_sigterm_dies_and_yields_nothing(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(
        job := Job(
            fake,
            """
install_signal_handlers()
with client.on_accelerators():
    child = os.fork()
    if child == 0:
        print("forked", flush=True)
        time.sleep(20)
        os._exit(0)
    time.sleep(0.3)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.stdin.read()
""",
        )
    )
    job.reads("forked")
    job.reads(str(-signal.SIGTERM))
    assert fake.holders == ["job-a"]
    assert fake.methods("Yield") == []


def test_a_forked_child_is_refused_and_never_yields_its_parents_lease(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(
        job := Job(
            fake,
            """
import time
with client.on_accelerators() as lease:
    child = os.fork()
    if child == 0:
        for use in (client.acquire, client.yield_, client.close):
            try:
                use()
            except ForkedClient as error:
                print("refused", flush=True)
        lease.yield_()
        sys.exit(5)  # leaves the region, runs atexit
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    time.sleep(1)  # the lease goes on being renewed
    print(lease.held, flush=True)
    input()
""",
        )
    )
    job.reads("refused")
    job.reads("refused")
    job.reads("5")
    assert fake.methods("Yield") == []
    job.reads("True")
    assert fake.methods("Yield") == []


def test_a_forked_child_can_have_a_client_of_its_own(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(
        job := Job(
            fake,
            """
client.acquire()
child = os.fork()
if child == 0:
    own = OrchestratorClient()
    own.acquire()
    print("own", flush=True)
    own.yield_()
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""",
        )
    )
    job.reads("own")
    job.reads("0")
    job.ends(0)
    assert sorted(fake.state.yielded) == ["lease-1", "lease-2"]


def test_workers_of_multiprocessing_fork_inside_a_held_region(fake: FakeOrchestrator, jobs: list[Job]) -> None:
    jobs.append(
        job := Job(
            fake,
            """
import multiprocessing
with client.on_accelerators():
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(sum(pool.map(abs, range(10))), flush=True)
""",
        )
    )
    job.reads("45")
    job.ends(0)
    assert len(fake.methods("Yield")) == 1
