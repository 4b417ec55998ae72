"""The commands against the whole platform on an emulated GPU."""

from __future__ import annotations

import json
import os
import signal
import sys

import pytest
from embedded import JOB_BYTES, TIMESLICE, Platform, Running
from patience import eventually

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]


def test_it_prints_what_jobs_need_in_their_environment(platform: Platform) -> None:
    state = platform.state_dir
    assert platform.up.lines == [
        f"export TIMESLICE_ORCHESTRATOR=unix://{state}/orchestrator.sock",
        f"export TIMESLICE_NODE_SOCKET={state}/node.sock",
        "# ready: trainer-group (1 device); Ctrl-C stops it",
    ]


def test_two_jobs_whose_memory_does_not_fit_together_take_turns(platform: Platform) -> None:
    before = platform.group()
    platform.timeslice("drain", "trainer-group")  # until both are there: however slowly they start, they meet
    jobs = [platform.gpu_job("job-a"), platform.gpu_job("job-b")]
    eventually(lambda: len(platform.group()["waiters"]) == 2, within_s=20)
    platform.timeslice("resume", "trainer-group")
    for job in jobs:
        assert job.ends() == ["begun", "phase 0", "phase 1", "phase 2"]
    after = platform.group()
    assert after["handoffs"] - before["handoffs"] >= 3
    assert after["totals"]["bytes_parked"] - before["totals"]["bytes_parked"] >= 3 * JOB_BYTES


def test_status_shows_holder_waiter_and_where_the_state_is(platform: Platform) -> None:
    platform.gpu_job("job-a", phases=1, phase_s=20).says("begun")
    platform.job("job-b", "sh", "-c", "sleep 20", hold=True)
    eventually(lambda: platform.group()["waiters"])
    eventually(lambda: platform.group()["members"][0]["parts"][0]["bytes"] > JOB_BYTES)  # the node looks now and then
    group = platform.group()
    assert [holder["job_id"] for holder in group["holders"]] == ["job-a"]
    assert [(waiter["job_id"], waiter["position"]) for waiter in group["waiters"]] == [("job-b", 1)]
    assert json.loads(platform.timeslice("status", "--json").stdout)[0].keys() == group.keys()
    text = platform.timeslice("status", "trainer-group").stdout.splitlines()
    assert text[0].split() == ["GROUP", "HOLDER", "HELD", "WAITING", "DEVICES", "DUTY", "HAND-OFFS"]
    assert text[1].split()[:2] == ["trainer-group", "job-a"]
    assert "job-b (" in text[1]
    [line] = [line for line in text[2:] if "job-a" in line]
    assert "running" in line
    assert "MiB" in line


def test_a_forced_release_parks_the_holder_which_then_waits_its_turn(platform: Platform) -> None:
    holder = platform.gpu_job("job-a", phases=1, phase_s=4)
    holder.says("begun")
    eventually(lambda: platform.group()["holders"])
    other = platform.job("job-b", "sh", "-c", "sleep 0.5; echo served", hold=True)
    eventually(lambda: platform.group()["waiters"])
    refused = platform.timeslice("release", "trainer-group")
    assert (refused.returncode, refused.stderr) == (
        2,
        "error: a release interrupts a phase that is running (add --force to do it)\n",
    )
    done = platform.timeslice("release", "--force", "trainer-group", "--job", "job-a")
    assert (done.returncode, done.stdout) == (0, "released trainer-group: 1 lease taken away\n")
    assert other.ends() == ["served"]
    assert holder.ends(within_s=40)[-1] == "phase 0"  # nothing of its state was lost
    nobody = platform.timeslice("release", "--force", "trainer-group")
    assert (nobody.returncode, nobody.stdout) == (0, "nobody holds trainer-group\n")


def test_a_drained_group_serves_nobody_until_it_is_resumed(platform: Platform) -> None:
    assert platform.timeslice("drain", "trainer-group").stdout == "trainer-group is draining\n"
    job = platform.job("job-c", "echo", "served", hold=True)
    eventually(lambda: platform.group()["waiters"])
    assert "draining: no further grants" in platform.timeslice("status").stdout
    assert job.process.poll() is None
    assert platform.timeslice("resume", "trainer-group").stdout == "trainer-group is served again\n"
    assert job.ends() == ["served"]


def test_a_watch_shows_changes_as_they_come(platform: Platform) -> None:
    watch = Running([str(TIMESLICE), "status", "--watch", "--json"], platform.env)
    try:
        watch.says('"trainer-group"')
        platform.job("job-w", "sleep", "0.3", hold=True).ends()
        watch.says('"job_id": "job-w", "leases": 1')
    finally:
        watch.stop(signal.SIGINT)
    assert watch.process.returncode == 130


def test_run_ends_with_the_status_of_its_command(platform: Platform) -> None:
    for hold in (False, True):
        platform.job("job-r", "sh", "-c", "exit 7", hold=hold).ends(7)
        killed = -signal.SIGKILL if not hold else 128 + signal.SIGKILL
        platform.job("job-r", "sh", "-c", "kill -9 $$", hold=hold).ends(killed)
        platform.job("job-r", "no-such-command", hold=hold).ends(127)
        platform.job("job-r", "/", hold=hold).ends(126)


def test_run_without_a_node_leaves_its_command_without_one(platform: Platform) -> None:
    platform.env["TIMESLICE_NODE_SOCKET"] = f"{platform.state_dir}/node.sock"
    try:
        options = ["run", "--no-node", "--job", "job-n", "--group", "trainer-group"]
        done = platform.timeslice(*options, "--", "sh", "-c", 'echo "[$TIMESLICE_NODE_SOCKET]"')
    finally:
        del platform.env["TIMESLICE_NODE_SOCKET"]
    assert (done.returncode, done.stdout) == (0, "[]\n")


def test_run_passes_sigterm_to_its_command_and_gives_back(platform: Platform) -> None:
    code = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(9)); print('in', flush=True); time.sleep(20)"
    )
    for hold in (True, False):
        job = platform.job("job-t", sys.executable, "-c", code, hold=hold)
        job.says("in")
        job.process.terminate()
        job.ends(9)
    assert platform.group()["holders"] == []


def test_run_that_is_ended_while_it_waits_leaves_no_ghost(platform: Platform) -> None:
    platform.job("job-a", "sh", "-c", "echo in; sleep 20", hold=True).says("in")
    waiting = platform.job("job-b", "true", hold=True)
    eventually(lambda: platform.group()["waiters"])
    waiting.process.terminate()
    waiting.ends(128 + signal.SIGTERM)
    assert platform.group()["waiters"] == []


def test_a_job_whose_process_was_killed_frees_the_group(platform: Platform) -> None:
    holder = platform.gpu_job("job-k", phases=1, phase_s=20)
    holder.says("begun")
    eventually(lambda: platform.group()["holders"])
    holder.process.kill()
    platform.job("job-l", "true", hold=True).ends(within_s=10)


def test_an_unknown_group_is_named_with_those_there_are(platform: Platform) -> None:
    job = platform.job("job-x", "true", group="no-such-group")
    job.ends(125)
    assert "no-such-group" in job.errors[0]
    assert "trainer-group" in job.errors[0]
    missing = platform.timeslice("status", "no-such-group")
    assert missing.returncode == 1
    assert missing.stderr.startswith("error: ")


def test_a_second_one_on_the_same_state_directory_is_refused_and_the_first_goes_on(platform: Platform) -> None:
    second = platform.timeslice("up", "--dev-root", str(platform.emulator.dev_root))
    assert second.returncode == 2
    assert "in use" in second.stderr.splitlines()[-1]
    assert platform.timeslice("status").returncode == 0


def test_jobs_and_watches_go_on_when_the_platform_is_restarted_under_them(platform: Platform) -> None:
    watch = Running([str(TIMESLICE), "status", "--watch", "--json", "trainer-group"], platform.env)
    jobs = [platform.gpu_job("job-a", phases=8), platform.gpu_job("job-b", phases=8)]
    for job in jobs:
        job.says("phase 0")
    os.killpg(platform.up.process.pid, signal.SIGINT)  # Ctrl-C: a terminal sends it to all that the command started
    platform.up.ends(within_s=10)
    assert [line for line in platform.up.errors if "Traceback" in line or "ERROR" in line] == []
    platform.start()
    for job in jobs:
        assert job.ends(within_s=30)[-1] == "phase 7"
    platform.job("job-after", "sleep", "0.3", hold=True).ends()
    watch.says('"job_id": "job-after", "leases": 1')
    watch.stop()
