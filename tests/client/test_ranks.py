from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_orchestrator import FakeOrchestrator
from patience import eventually, in_thread
from timeslice import OrchestratorClient, RankedClient
from timeslice_api.errors import ConfigError, ConnectionLost, GroupNotFound, InvalidRequest

RANK = """
import sys, time
from timeslice import *
ranks = RankedClient(OrchestratorClient())
@ranks.on_accelerators()
def phase(step):
    print("in", step, flush=True)
    if ranks.rank == 1:
        time.sleep(0.2)  # a slow rank
for step in range(3):
    phase(step)
print("done", flush=True)
"""


def rank_process(fake: FakeOrchestrator, directory: Path, rank: int, code: str = RANK) -> subprocess.Popen[str]:
    env = {
        **os.environ,
        "TIMESLICE_ORCHESTRATOR": fake.address,
        "TIMESLICE_JOB_ID": "job-a",
        "TIMESLICE_GROUP_ID": "g",
        "TIMESLICE_RANKS_ADDRESS": str(directory / "ranks.sock"),
        "RANK": str(rank),
        "WORLD_SIZE": "3",
    }
    return subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_ranks_in_processes_of_their_own_hold_together_by_one_lease(fake: FakeOrchestrator, short_dir: Path) -> None:
    processes = [rank_process(fake, short_dir, rank) for rank in (2, 1, 0)]
    said = [process.communicate(timeout=20)[0].split("\n") for process in processes]
    assert said == [["in 0", "in 1", "in 2", "done", ""]] * 3
    assert len(fake.methods("Acquire")) == len(fake.methods("Yield")) == 3
    assert fake.holders == []


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_a_rank_that_is_killed_in_a_phase_does_not_keep_the_group(fake: FakeOrchestrator, short_dir: Path) -> None:
    slow = RANK.replace("time.sleep(0.2)", "time.sleep(20)")
    processes = [rank_process(fake, short_dir, rank, slow) for rank in (0, 1, 2)]
    assert processes[1].stdout is not None
    assert processes[1].stdout.readline() == "in 0\n"
    processes[1].kill()
    for process in processes:
        process.communicate(timeout=20)
    assert [process.returncode for process in processes] == [1, -9, 1]
    assert fake.holders == []


class Ranks:
    """All ranks in threads of this process."""

    def __init__(self, fake: FakeOrchestrator, directory: Path, size: int = 2) -> None:
        self.clients = [OrchestratorClient(fake.address, job_id="job-a", group_id="g") for _ in range(size)]
        self.ranks = [
            RankedClient(client, rank=rank, world_size=size, address=str(directory / "r.sock"), connect_s=5)
            for rank, client in enumerate(self.clients)
        ]

    def __enter__(self) -> list[RankedClient]:
        return self.ranks

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.close()
        for client in self.clients:
            client.close()


def test_the_group_is_held_until_the_slowest_rank_has_left(fake: FakeOrchestrator, short_dir: Path) -> None:
    with Ranks(fake, short_dir) as (first, second):
        inside, leave = threading.Event(), threading.Event()

        def slow() -> None:
            with second.on_accelerators():
                inside.set()
                leave.wait(5)

        def fast() -> None:
            with first.on_accelerators():
                pass

        threads = [in_thread(slow), in_thread(fast)]
        assert inside.wait(5)
        time.sleep(0.1)
        assert fake.holders == ["job-a"]
        leave.set()
        for thread in threads:
            thread.join(5)
        assert fake.holders == []


def test_every_rank_gets_the_orchestrators_refusal(fake: FakeOrchestrator, short_dir: Path) -> None:
    fake.faults["Acquire"].append(GroupNotFound("no group 'g'"))
    heard: list[type[BaseException]] = []

    def ask(rank: RankedClient) -> None:
        with pytest.raises(GroupNotFound, match="no group 'g'") as caught:
            rank.acquire()
        heard.append(caught.type)

    with Ranks(fake, short_dir, 3) as ranks:
        threads = [in_thread(lambda rank=rank: ask(rank)) for rank in ranks]  # type: ignore[misc]
        for thread in threads:
            thread.join(5)
    assert heard == [GroupNotFound] * 3


def test_ranks_in_different_phases_are_told_so(fake: FakeOrchestrator, short_dir: Path) -> None:
    heard: list[str] = []

    def ask(rank: RankedClient, group: str) -> None:
        with pytest.raises(ConfigError) as caught:
            rank.acquire(group)
        heard.append(caught.value.message)

    with Ranks(fake, short_dir) as (first, second):
        threads = [in_thread(lambda: ask(first, "train")), in_thread(lambda: ask(second, "sample"))]
        for thread in threads:
            thread.join(5)
    assert heard == ["rank 1 is at ['sample'], and rank 0 at ['train']: ranks must call the same phases"] * 2


def test_ranks_that_never_come_end_the_wait(fake: FakeOrchestrator, short_dir: Path) -> None:
    client = OrchestratorClient(fake.address, job_id="job-a", group_id="g")
    first = RankedClient(client, rank=0, world_size=3, address=str(short_dir / "r.sock"), connect_s=0.2)
    with pytest.raises(ConnectionLost, match=r"2 of 2 other ranks did not come in 0\.2 s"):
        first.acquire()
    first.close()
    second = RankedClient(client, rank=1, world_size=3, address=str(short_dir / "none.sock"), connect_s=0.2)
    with pytest.raises(ConnectionLost, match="does not listen"):
        second.acquire()
    client.close()
    assert fake.holders == []


def test_a_file_or_a_socket_in_use_where_rank_0_is_to_listen_stays(client: OrchestratorClient, short_dir: Path) -> None:
    file, used, left = (short_dir / name for name in ("file", "used.sock", "left.sock"))
    file.write_text("weights")
    for path in (file, used):
        with contextlib.ExitStack() as stack:
            if path == used:
                stack.callback(RankedClient(client, address=str(used), rank=0, world_size=2).close)
            with pytest.raises(ConnectionLost, match=r"rank 0 cannot listen at .*: .*in use"):
                RankedClient(client, address=str(path), rank=0, world_size=2)
            assert path.exists()
    assert file.read_text() == "weights"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(left))
    RankedClient(client, address=str(left), rank=0, world_size=2).close()


def test_one_rank_alone_needs_no_address(fake: FakeOrchestrator, client: OrchestratorClient) -> None:
    alone = RankedClient(client, rank=0, world_size=1)
    with alone.on_accelerators():
        assert fake.holders == ["job-a"]
    eventually(lambda: fake.holders == [])


def test_a_coroutine_function_is_refused_not_run_unguarded(client: OrchestratorClient) -> None:
    async def phase() -> None: ...

    with pytest.raises(TypeError, match="asynchronous"):
        RankedClient(client, rank=0, world_size=1).on_accelerators()(phase)


def test_a_rank_that_cannot_be_known_is_an_error(client: OrchestratorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="RANK, SLURM_PROCID"):
        RankedClient(client)
    monkeypatch.setenv("RANK", "²")
    with pytest.raises(ConfigError, match="RANK, SLURM_PROCID"):
        RankedClient(client)
    with pytest.raises(InvalidRequest, match="neither host:port nor a path"):
        RankedClient(client, address="127.0.0.1:²", rank=0, world_size=2)
    with pytest.raises(ConfigError, match="rank 3 is not one of 2"):
        RankedClient(client, rank=3, world_size=2)
    with pytest.raises(ConfigError, match="TIMESLICE_RANKS_ADDRESS is not set"):
        RankedClient(client, rank=1, world_size=2)
