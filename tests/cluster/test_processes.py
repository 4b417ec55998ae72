import os
import subprocess
import sys
from pathlib import Path

import pytest
from kube_cluster.errors import ClusterError
from kube_cluster.processes import Identity, Ledger, Program, end_process, start_time

pytestmark = pytest.mark.processes


@pytest.fixture
def group(tmp_path):
    """Takes the place of a cgroup's folder."""
    (tmp_path / "group").mkdir()
    return tmp_path / "group"


@pytest.fixture
def ledger(tmp_path):
    for name in ("records", "logs"):
        (tmp_path / name).mkdir()
    found = Ledger(tmp_path / "records", tmp_path / "logs")
    yield found
    for name in found.names():
        found.kill(name)


def test_a_program_outlives_its_starter_and_is_known_by_its_record(ledger, group):
    ledger.start(Program("sleeper", ["sleep", "60"], group))
    identity = ledger.identity("sleeper")
    assert identity.is_alive()
    assert (group / "cgroup.procs").read_text() == f"{identity.pid}\n"
    assert os.getsid(identity.pid) != os.getsid(0)
    assert ledger.names() == ["sleeper"]


def test_a_program_is_ended_and_forgotten(ledger, group):
    ledger.start(Program("sleeper", ["sleep", "60"], group))
    identity = ledger.identity("sleeper")
    ledger.end("sleeper")
    assert not identity.is_alive()
    assert ledger.names() == []
    ledger.end("sleeper")


def test_a_program_that_ignores_sigterm_is_killed(ledger, group):
    ignoring = "trap '' TERM; echo ready; exec >&-; while :; do sleep 1; done"
    ledger.start(Program("stubborn", ["sh", "-c", ignoring], group, announces=True))
    identity = ledger.identity("stubborn")
    ledger.end("stubborn", patience_s=0.2)
    assert not identity.is_alive()


def test_a_process_that_got_the_pid_of_an_ended_one_is_left_alone():
    with subprocess.Popen(["sleep", "60"]) as stranger:
        known = Identity(stranger.pid, start_time(stranger.pid) - 1, _boot_id())
        end_process(known, patience_s=0)
        assert stranger.poll() is None
        stranger.kill()


def test_a_record_of_another_boot_names_nobody():
    assert not Identity(os.getpid(), start_time(os.getpid()), "another").is_alive()
    assert Identity(os.getpid(), start_time(os.getpid()), _boot_id()).is_alive()


@pytest.mark.parametrize("text", ["", "12", "12 34", "x 34 boot"])
def test_a_record_that_was_cut_off_names_nobody(text):
    assert Identity.parse(text) is None


def test_a_program_that_fails_at_once_is_an_error_with_its_log(ledger, group):
    failing = Program("failing", ["sh", "-c", "echo no luck >&2; exit 3"], group, announces=True)
    with pytest.raises(ClusterError, match=r"failing did not start(?s:.*)no luck"):
        ledger.start(failing)


def test_a_program_that_has_ended_is_reported_with_the_end_of_its_log(ledger, group):
    ledger.start(Program("short", ["sh", "-c", "echo going >&2; echo ready; exec sleep 60 >&2"], group, announces=True))
    ledger.require("short")
    identity = ledger.identity("short")
    end_process(identity, patience_s=5)
    with pytest.raises(ClusterError, match=r"short has ended(?s:.*)going"):
        ledger.require("short")


def test_a_program_gets_only_the_environment_that_is_named(ledger, group, monkeypatch):
    monkeypatch.setenv("SECRET", "x")
    show = [sys.executable, "-c", "import os; print(sorted(os.environ), flush=True); print('ready')"]
    with pytest.raises(ClusterError) as refused:
        ledger.start(Program("shows", show, group, {"NAMED": "1"}, announces=True))
    assert "'NAMED'" in str(refused.value)
    assert "SECRET" not in str(refused.value)


def _boot_id():
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
