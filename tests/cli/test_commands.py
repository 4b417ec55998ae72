"""The commands without a platform: options, errors, exit status."""

from __future__ import annotations

import argparse
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from embedded import environment, timeslice
from timeslice.cli import main as cli
from timeslice.cli.main import main, parser_of_all
from timeslice.cli.options import made
from timeslice_api.errors import ConfigError

COMMANDS = [command.__name__.rpartition(".")[2] for command in cli.COMMANDS]


@pytest.fixture(autouse=True)
def no_platform(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("ORCHESTRATOR", "JOB_ID", "GROUP_ID", "NODE_SOCKET", "GROUPS"):
        monkeypatch.delenv(f"TIMESLICE_{name}", raising=False)
    monkeypatch.setenv("TIMESLICE_STATE_DIR", str(tmp_path / "s"))


def help_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    text = help_of(capsys)
    for command in COMMANDS:
        assert re.search(rf"^    {command}\b", text, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_commands_help_ends_with_examples(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert f"examples:\n  timeslice {command}" in help_of(capsys, command)


def twins(command: str) -> dict[str, argparse.Action]:
    """Options of a command by the variable that they name."""
    named = [(action, re.search(r"\[env (\w+)\]", action.help or "")) for action in parsers()[command]._actions]
    return {found[1]: action for action, found in named if found}


def parsers() -> dict[str, argparse.ArgumentParser]:
    (commands,) = (each for each in parser_of_all()._actions if isinstance(each, argparse._SubParsersAction))
    return dict(commands.choices)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_that_has_a_twin_in_the_environment_takes_it(
    monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    for twin in twins(command):
        monkeypatch.setenv(twin, f"/value-of-{twin}")
    taken = {twin: action.default for twin, action in twins(command).items() if twin != "TIMESLICE_GROUP_ID"}
    assert taken == {twin: f"/value-of-{twin}" for twin in taken}


def test_the_group_of_a_run_comes_from_the_environment_too(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMESLICE_GROUP_ID", "g")  # the option may be repeated, so this one is no default of it
    main(["run", "--job", "a", "--", "true"])
    assert "no node is known" in capsys.readouterr().err


def test_the_commands_together_have_all_twins_that_the_readme_names() -> None:
    assert {twin for command in COMMANDS for twin in twins(command)} >= {
        *("TIMESLICE_ORCHESTRATOR", "TIMESLICE_NODE_SOCKET", "TIMESLICE_TOKEN_FILE", "TIMESLICE_TOKENS"),
        *("TIMESLICE_TLS_CA", "TIMESLICE_TLS_CERT", "TIMESLICE_TLS_KEY", "TIMESLICE_STATE_DIR", "TIMESLICE_GROUPS"),
    }


@pytest.mark.parametrize("command", ["up", "node", "orchestrator"])
def test_a_choice_from_the_environment_that_is_none_is_refused_by_both_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("TIMESLICE_LOG_LEVEL", "loud")
    with pytest.raises(SystemExit):
        main([command])
    assert "'loud' (or TIMESLICE_LOG_LEVEL) is not one of" in capsys.readouterr().err


def test_no_platform_at_all_says_how_to_start_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "timeslice up" in error


def test_nobody_at_the_address_is_exit_status_3(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["status", "--orchestrator", f"unix://{tmp_path}/o.sock"]) == 3
    error = capsys.readouterr().err
    assert error.startswith("error: no answer")
    assert "timeslice up" in error


def test_the_address_comes_from_the_environment_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESLICE_ORCHESTRATOR", f"unix://{tmp_path}/o.sock")
    assert main(["status"]) == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["status", "--orchestrator", "nonsense"], "host:port"),
        (["run", "--group", "g", "--", "true"], "--job and --group"),
        (["run", "--job", "a", "--", "true"], "--job and --group"),
        (["run", "--job", "a b", "--group", "g", "--", "true"], "job 'a b'"),
        (["run", "--job", "a", "--group", "g", "--", "true"], "no node is known"),
        (["run", "--job", "a", "--group", "g", "--no-node", "--", "true"], "no orchestrator is named"),
        (["node", "--group", "g="], "names no device"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_wrong_option_is_one_line_that_says_what_is_wrong(
    capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(arguments) == (125 if arguments[0] == "run" else 2)
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line


@pytest.mark.processes
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["node", "--socket", "/" + "x" * 120], "107"),
        (["orchestrator", "--listen", "nonsense"], "host:port"),
        (
            ["orchestrator", "--listen", "0.0.0.0:7070"],
            "0.0.0.0:7070 can be reached from other machines, so it needs TLS",
        ),
        (["up", "--state-dir", "/tmp/" + "x" * 110], "107"),
    ],
    ids=["node", "orchestrator", "orchestrator without tls", "up"],
)
def test_a_program_with_a_wrong_option_ends_with_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = timeslice(*arguments, env=environment({"TIMESLICE_STATE_DIR": str(tmp_path / "s")}))
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("error: ")
    assert message in done.stderr.splitlines()[-1]


@pytest.mark.processes
@pytest.mark.timeout(30)
@pytest.mark.parametrize("command", ["up", "orchestrator", "node"])
def test_a_state_directory_that_cannot_be_made_is_one_line_that_names_it(tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("")
    done = timeslice(command, "--state-dir", str(tmp_path / "file" / "s"))
    assert done.returncode == 2
    [line] = done.stderr.splitlines()
    assert line.startswith(f"error: cannot make the state directory {tmp_path}")
    assert "Not a directory" in line


@pytest.mark.processes
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("encoding", "name", "shown"), [("ascii", "é", r"\xe9"), ("utf-8:strict", "\udcff", r"\udcff")]
)
def test_what_a_terminal_has_no_sign_for_is_shown_as_a_number(
    tmp_path: Path, encoding: str, name: str, shown: str
) -> None:
    env = environment({"PYTHONIOENCODING": encoding})
    done = timeslice("doctor", "--state-dir", str(tmp_path / name), env=env)
    assert f"{tmp_path}/{shown}" in done.stdout
    assert done.stderr == ""


def test_a_state_directory_that_cannot_be_written_says_what_to_give_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write everywhere
    with pytest.raises(ConfigError, match=r"cannot write to the state directory .*--state-dir"):
        made(tmp_path)


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_a_port_that_is_in_use_is_named_with_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        done = timeslice("orchestrator", "--listen", address, "--state-dir", str(tmp_path / "s"))
    assert done.returncode == 2
    assert f"cannot listen on {address}" in done.stderr.splitlines()[-1]
    assert "another address" in done.stderr.splitlines()[-1]


@pytest.mark.processes
@pytest.mark.timeout(30)
@pytest.mark.parametrize(
    ("module", "command", "extra"),
    [("yaml", "orchestrator", "orchestrator"), ("pynvml", "node", "node"), ("pynvml", "up", "node")],
    ids=lambda value: value,
)
def test_a_part_that_is_not_installed_is_named_with_its_extra(
    tmp_path: Path, module: str, command: str, extra: str
) -> None:
    code = (
        f"import sys; sys.modules[{module!r}] = None; from timeslice.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command],
        env=environment({"TIMESLICE_STATE_DIR": str(tmp_path / "s")}),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 2
    assert f"timeslice[{extra}]" in done.stderr.splitlines()[-1]


@pytest.mark.processes
@pytest.mark.timeout(30)
def test_a_groups_file_with_an_error_names_line_and_field(tmp_path: Path) -> None:
    (tmp_path / "groups.yaml").write_text("groups:\n  trainer-group:\n    devices: 3\n")
    done = timeslice("up", "--groups", str(tmp_path / "groups.yaml"), "--state-dir", str(tmp_path / "s"))
    assert done.returncode == 2
    assert "line 3" in done.stderr.splitlines()[-1]
