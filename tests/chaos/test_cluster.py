"""What a run on a cluster is made of, as far as it needs none: faults, logs, pids, ends of containers, options."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import yaml
from timeslice_chaos.__main__ import parsed
from timeslice_chaos.cluster.deck import CALLS, ClusterFault, faults
from timeslice_chaos.cluster.ends import Ends
from timeslice_chaos.cluster.follow import Jobs, Tail
from timeslice_chaos.cluster.jobs import PLACES, manifests_of, program
from timeslice_chaos.cluster.pids import PidOffice
from timeslice_chaos.cluster.strike import _WAYS
from timeslice_chaos.deck import deal
from timeslice_chaos.log import Event, Log, distinct, read

ROOT = Path(__file__).resolve().parents[2]


def test_a_seed_deals_each_fault_and_each_kind_once_before_any_comes_again_and_always_in_the_same_order() -> None:
    hand, again, other = (list(islice(deal(faults(), seed), len(faults()))) for seed in (7, 7, 8))
    assert hand == again != other
    assert sorted(map(repr, hand)) == sorted(map(repr, faults()))
    kinds = {fault.kind for fault in hand}
    assert {fault.kind for fault in hand[: len(kinds)]} == kinds


def test_each_fault_of_a_cluster_has_a_name_of_its_own_a_way_to_happen_and_a_call_that_exists() -> None:
    names = [(fault.kind, fault.where) for fault in faults()]
    assert len(set(names)) == len(names)
    assert {fault.kind for fault in faults()} == {*_WAYS, "gpu"}
    assert {fault.during for fault in faults()} == {"", *CALLS}
    assert ClusterFault("force", "mover", "restore").where == "mover in restore"


def test_what_was_written_by_then_or_is_written_by_halves_is_not_followed(tmp_path: Path) -> None:
    path = tmp_path / "log"
    assert Tail.from_now(path).lines() == []
    path.write_text("old\n")
    tail = Tail.from_now(path)
    with path.open("a") as file:
        file.write("new\nhalf")
        file.flush()
        assert tail.lines() == ["new"]
        file.write(" of it\n")
    assert tail.lines() == ["half of it"]
    assert tail.lines() == []


@pytest.fixture
def living_pid() -> Iterator[int]:
    """Of a process that is one of a job, by its command line."""
    program_ = "import sys; print(flush=True); sys.stdin.read()"
    arguments = [sys.executable, "-c", program_, "timeslice_chaos.pod"]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        process.kill()


Logs = Callable[[Path, str, int], Log]


@pytest.fixture
def log() -> Iterator[Logs]:
    """Makes logs."""
    with ExitStack() as stack:
        yield lambda folder, role, pid: stack.enter_context(closing(Log(folder, role, pid=pid)))


def test_jobs_hold_wait_and_end_as_their_logs_say(tmp_path: Path, living_pid: int, log: Logs) -> None:
    for place in ("a", "b"):
        (tmp_path / place).mkdir()
    jobs = Jobs({place: tmp_path / place for place in ("a", "b")})
    assert jobs.all() == []
    lives, dead = log(tmp_path / "a", "job", living_pid), log(tmp_path / "b", "job", 2**22 - 1)
    for each, name in ((lives, "a-1"), (dead, "b-1")):
        each.say("started", pod=name)
        each.say("asks", turn=1)
    assert [(process.pod, process.is_) for process in jobs.living()] == [("a-1", "waiter")]
    began = lives.say("granted", turn=1)
    assert [process.is_ for process in jobs.living()] == ["holder"]
    assert jobs.granted(began) == {"a": began}
    assert jobs.granted(began + 1e-6) == {}
    lives.say("yields", turn=1)
    assert [process.is_ for process in jobs.living()] == [""]
    assert [process.pod for process in jobs.departed()] == ["b-1"]
    assert jobs.departed() == []


def test_a_process_is_told_the_pid_by_which_others_know_it() -> None:
    ask = "import socket, sys; c = socket.socket(socket.AF_UNIX); c.connect(sys.argv[1]); print(int(c.recv(64)))"
    with tempfile.TemporaryDirectory(prefix="ts-") as folder:
        path = Path(folder) / "office"
        office = PidOffice(path)
        with subprocess.Popen([sys.executable, "-c", ask, str(path)], stdout=subprocess.PIPE, text=True) as asking:
            told, _ = asking.communicate(timeout=8)
        office.close()
    assert int(told) == asking.pid != os.getpid()


def test_processes_that_were_given_the_same_pid_are_told_apart() -> None:
    whats = ["kills", "job", "granted", "gone", "job", "granted"]
    events = distinct([Event(float(at), 7, "job", what) for at, what in enumerate(whats)])
    assert [event.pid for event in events[:4]] == [7] * 4
    assert len({event.pid for event in events[4:]} | {7}) == 2


def pod(name: str, code: int, *, component: str = "", reason: str = "Error") -> dict[str, Any]:
    over = {"terminated": {"exitCode": code, "reason": reason, "containerID": f"containerd://{name}"}}
    statuses = [{"state": {"running": {}}, "lastState": over}]
    labels = {"app.kubernetes.io/component": component} if component else {}
    return {"metadata": {"name": name, "labels": labels}, "status": {"containerStatuses": statuses}}


def nobody(_pod: str) -> int:
    return 0


@pytest.mark.parametrize(
    ("made", "status"),
    [
        (pod("told-to-end", 0), None),
        (pod("given-up", 3, component="orchestrator"), None),
        (pod("given-up-as-a-job", 3), 3),
        (pod("killed", 137), -9),
        (pod("without-memory", 137, reason="OOMKilled"), 137),
        (pod("crashed", 1, component="node"), 1),
    ],
)
def test_an_end_out_of_order_is_told_once(tmp_path: Path, log: Logs, made: dict[str, Any], status: int | None) -> None:
    ends = Ends(log(tmp_path, "world", 0), nobody)
    ends.run({f"containerd://{made['metadata']['name']}": 5})
    ends.take(made)
    ends.take(made)
    assert [(event.what, event.pid, event["status"]) for event in read(tmp_path)] == (
        [] if status is None else [("ended", 5, status)]
    )


def test_nobody_knows_who_has_killed_a_container_that_was_never_seen(tmp_path: Path, log: Logs) -> None:
    ends = Ends(log(tmp_path, "world", 0), nobody)
    ends.take(pod("unseen", 137))
    ends.take(pod("unseen-without-memory", 137, reason="OOMKilled"))
    assert [event["name"] for event in read(tmp_path)] == ["unseen-without-memory"]


def test_a_job_that_said_goodbye_is_known_by_its_pod_although_its_container_was_never_seen(
    tmp_path: Path, log: Logs
) -> None:
    (tmp_path / "a").mkdir()
    told = log(tmp_path / "a", "job", 77)
    told.say("started", pod="a-1")
    told.say("refused", turn=1, error="OperationFailed")
    ends = Ends(log(tmp_path, "world", 0), Jobs({"a": tmp_path / "a"}).said_goodbye)
    ends.take(pod("a-1", 3))
    ends.take(pod("a-2", 3))
    assert [(event["name"], event.pid) for event in read(tmp_path)] == [("a-1", 77), ("a-2", os.getpid())]


def test_the_jobs_pods_have_all_that_their_program_imports() -> None:
    files = program()["data"]
    imported = re.findall(r"from timeslice_chaos(?:\.(\w+))? import (\w+)", "\n".join(files.values()))
    assert {f"{module or name}.py" for module, name in imported} <= files.keys()
    assert list(yaml.safe_load_all(yaml.safe_dump_all(manifests_of("c", "group")))) == manifests_of("c", "group")
    assert {place.partition("-")[0] for place in PLACES} == {"a", "b", "c"}


def test_the_commands_that_the_document_shows_have_options_that_exist() -> None:
    lines = re.findall(r"^\./hack/test chaos.*", (ROOT / "docs/chaos.md").read_text(), re.MULTILINE)
    commands = [re.split(r" {2,}", line)[0].split()[2:] for line in lines]
    assert ["--cluster"] in commands
    for command in commands:
        parsed(command)
