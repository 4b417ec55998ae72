"""The commands without a platform: options, errors, exit status."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from embedded import environment, timeslice

pytestmark = [pytest.mark.processes, pytest.mark.timeout(30)]

COMMANDS = ["up", "run", "status", "release", "drain", "resume", "doctor", "orchestrator", "node"]


def test_help_lists_every_command() -> None:
    done = timeslice("--help")
    assert done.returncode == 0
    for command in COMMANDS:
        assert re.search(rf"^    {command}\b", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_ends_with_examples(command: str) -> None:
    done = timeslice(command, "--help")
    assert done.returncode == 0
    assert f"examples:\n  timeslice {command}" in done.stdout


def test_no_platform_at_all_says_how_to_start_one(tmp_path: Path) -> None:
    done = timeslice("status", env=environment({"TIMESLICE_STATE_DIR": str(tmp_path)}))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "timeslice up" in done.stderr


def test_nobody_at_the_address_is_exit_status_3(tmp_path: Path) -> None:
    done = timeslice("status", "--orchestrator", f"unix://{tmp_path}/o.sock")
    assert done.returncode == 3
    assert done.stderr.startswith("error: no answer")


def test_the_address_comes_from_the_environment_too(tmp_path: Path) -> None:
    done = timeslice("status", env=environment({"TIMESLICE_ORCHESTRATOR": f"unix://{tmp_path}/o.sock"}))
    assert done.returncode == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "--orchestrator", "nonsense"], "host:port"),
        (["run", "--group", "g", "--", "true"], "--job and --group"),
        (["run", "--job", "a", "--", "true"], "--job and --group"),
        (["run", "--job", "a b", "--group", "g", "--", "true"], "job 'a b'"),
        (["run", "--job", "a", "--group", "g", "--", "true"], "no node is known"),
        (["run", "--job", "a", "--group", "g", "--no-node", "--", "true"], "no orchestrator is named"),
        (["up", "--group", "g", "--groups", "f.yaml"], "contradict"),
        (["up", "--group", "g="], "names no device"),
        (["up", "--groups", "/no/such/file.yaml"], "cannot read groups file"),
        (["node", "--socket", "/" + "x" * 120], "107"),
        (["orchestrator", "--listen", "nonsense"], "host:port"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_option_is_one_line_that_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = timeslice(*arguments, env=environment({"TIMESLICE_STATE_DIR": str(tmp_path / "s")}))
    assert done.returncode == (125 if arguments[0] == "run" else 2)
    line = done.stderr.splitlines()[-1]
    assert line.startswith("error: ")
    assert message in line


def test_a_groups_file_with_an_error_names_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text("groups:\n  trainer-group:\n    devices: 3\n")
    done = timeslice("up", "--groups", str(tmp_path / "groups.yaml"), "--state-dir", str(tmp_path / "s"))
    assert done.returncode == 2
    assert "line 3" in done.stderr.splitlines()[-1]
