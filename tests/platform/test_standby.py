"""Two orchestrators on one state directory: the one that leads is killed or stopped, and the other one goes on."""

from __future__ import annotations

import contextlib
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster import Cluster, Job, started_cluster
from embedded import Running
from patience import eventually
from two_jobs import go_on, parked_and_holding

pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]
BUSY_S = 1.0  # what a busy machine may add


def free_port() -> int:
    """One that nobody has on the loopback addresses, just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Pair:
    """Two processes that stand for the orchestrator of a cluster, by way of two machines' addresses, or one socket."""

    def __init__(self, cluster: Cluster, listen: tuple[tuple[str, ...], tuple[str, ...]]) -> None:
        self.cluster = cluster
        self._listen = listen
        cluster.orchestrator.stop()
        self.leader = self._started(0)
        self.leader.says("export TIMESLICE_ORCHESTRATOR=")
        self.follower = self._started(1)
        self.follows(self.leader)

    def follows(self, leader: Running) -> None:
        """Returns when the follower has said so."""
        eventually(lambda: any(f"process {leader.process.pid} on" in line for line in self.follower.errors))

    def ends(self, number: signal.Signals) -> float:
        """The leader gets a signal; returns when the other one leads, and after how many seconds."""
        began = time.monotonic()
        self.leader.process.send_signal(number)
        self.follower.says("export TIMESLICE_ORCHESTRATOR=")
        took = time.monotonic() - began
        self.leader.process.wait(10)
        return took

    def change_places(self) -> None:
        """The one that ended comes back, and stands by."""
        self._listen = self._listen[::-1]
        self.leader.stop()
        self.leader, self.follower = self.follower, self._started(1)
        self.follows(self.leader)

    def _started(self, number: int) -> Running:
        return self.cluster.started("--standby", *self._listen[number])

    def stop(self) -> None:
        """Ends both."""
        for process in (self.leader, self.follower):
            process.stop()


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    port = free_port()
    hosts = (f"127.0.0.1:{port}", f"127.0.0.2:{port}")
    several = request.param == "two addresses"
    listen = (("--listen", hosts[0]), ("--listen", hosts[1])) if several else ((), ())
    with tempfile.TemporaryDirectory(prefix="ts-") as folder, contextlib.ExitStack() as stack:
        cluster = stack.enter_context(
            started_cluster(Path(folder), "node-0", address=",".join(hosts) if several else "")
        )
        pair = Pair(cluster, listen)
        stack.callback(pair.stop)
        yield pair


@pytest.mark.parametrize("pair", ["one socket"], indirect=True)
def test_a_leader_killed_within_a_hand_off_is_followed_by_the_one_that_stands_by(pair: Pair) -> None:
    cluster = pair.cluster
    parked, holder = parked_and_holding(cluster)
    [machine] = cluster.machines
    machine.inject("restore", nth=1, delay_ms=600)
    cluster.waits(parked)
    holder.does("yield")
    eventually(lambda: machine.gpu_state(holder) == "checkpointed")  # half done
    pair.ends(signal.SIGKILL)
    go_on(cluster, parked, holder)


@pytest.mark.parametrize("pair", ["two addresses"], indirect=True)
def test_holders_and_waiters_notice_nothing_when_leaders_are_killed_and_stopped_in_turn(pair: Pair) -> None:
    cluster = pair.cluster
    waiter, holder = parked_and_holding(cluster)
    last = cluster.job("job-c")
    cluster.waits(waiter)
    last.tell("acquire")
    eventually(lambda: len(cluster.group()["waiters"]) == 2)
    places = [(each["job_id"], each["request_id"]) for each in cluster.group()["waiters"]]
    for number in (signal.SIGKILL, signal.SIGTERM):
        pair.ends(number)
        holder.does("check")
        assert [(each["job_id"], each["request_id"]) for each in cluster.group()["waiters"]] == places
        pair.change_places()
    holder.does("yield")
    assert waiter.hears() == "done acquire"
    waiter.does("check", "yield")
    assert last.hears() == "done acquire"
    last.does("fill", "yield")


class Turns:
    """A job that takes turns for as long as the block lasts, and how long each acquire took (seconds)."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._take, daemon=True)
        self.waits: list[float] = []
        self.failure = ""

    def _take(self) -> None:
        try:
            while not self._over.is_set():
                began = time.monotonic()
                self._job.does("acquire")
                self.waits.append(time.monotonic() - began)
                self._job.does("check", "yield")
        except AssertionError as error:
            self.failure = str(error)

    def take(self, count: int) -> None:
        """Returns when so many more were taken."""
        enough = len(self.waits) + count
        eventually(lambda: len(self.waits) >= enough or self.failure)

    def __enter__(self) -> Turns:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(30)


class Update:
    """What an update of one process costs two jobs that take turns."""

    def __init__(self, cluster: Cluster, one: Turns, other: Turns) -> None:
        self._cluster, self._turns = cluster, (one, other)
        one.take(5)
        self._ordinary = max(one.waits + other.waits)

    @contextlib.contextmanager
    def pausing(self) -> Iterator[None]:
        """The block ends a process and starts what replaces it. From its begin until the node is linked to whoever
        leads nobody can be granted; no acquire of that time may take longer than that, what it takes without an update,
        and the last pause of its client between two tries, which is at most as long as all before it, and 2 s."""
        told, began = [len(turns.waits) for turns in self._turns], time.monotonic()
        yield
        eventually(lambda: self._cluster.group()["devices"][0]["connected"])
        pause = time.monotonic() - began
        for turns in self._turns:
            turns.take(3)
        waits = [wait for turns, before in zip(self._turns, told, strict=True) for wait in turns.waits[before:]]
        ordinary = 2 * self._ordinary  # the other job's turn, which the update held up, too, comes first
        assert max(waits) < ordinary + pause + min(pause, 2.0) + BUSY_S, (ordinary, pause, waits)


@pytest.mark.parametrize("pair", ["two addresses"], indirect=True)
def test_a_rolling_update_with_jobs_running_fails_no_acquire_and_nobody_waits_longer_than_its_pauses(
    pair: Pair,
) -> None:
    first, second = parked_and_holding(pair.cluster)
    second.does("yield")
    [machine] = pair.cluster.machines
    with Turns(first) as one, Turns(second) as other:
        update = Update(pair.cluster, one, other)
        for _ in range(2):  # each orchestrator
            with update.pausing():
                pair.ends(signal.SIGTERM)
            pair.change_places()
        with update.pausing():
            machine.node.stop()
            machine.start()
    assert (one.failure, other.failure) == ("", "")
