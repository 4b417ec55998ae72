"""Every command and program that the documents show is run, here or by the test that is named."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from embedded import DEVICE_BYTES, Platform
from gpu_emulator.emulator import Emulator
from shown import DOCUMENTS, ROOT, Snippet, commands, snippets

# Commands that take too long here, or serve for ever, and the file that runs them.
ELSEWHERE = {
    "./hack/demo": "tests/demo/test_demo_runs.py",
    "./hack/test": ".ci/run",
    "./hack/lint": ".ci/run",
    "./hack/bench": "tests/bench/test_cases.py",
    "timeslice up": "tests/cli/test_up.py",
}

pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]
SHELL = [(snippet, command) for snippet in snippets("sh") for command in commands(snippet)]
HERE = [(snippet, command) for snippet, command in SHELL if not any(command.startswith(name) for name in ELSEWHERE)]


@pytest.fixture(scope="module")
def platform() -> Iterator[Platform]:
    with tempfile.TemporaryDirectory(prefix="ts-") as folder, Emulator(gpus=2, memory=DEVICE_BYTES) as emulator:
        trainer, sampler = (device["uuid"] for device in emulator.snapshot()["devices"])
        groups = ("--group", f"trainer-group={trainer}", "--group", f"sampler-group={sampler}")
        running = Platform(Path(folder), emulator, *groups)
        yield running
        running.close()


def places(pairs: list[tuple[Snippet, str]]) -> list[str]:
    return [f"{snippet.place} {command}" for snippet, command in pairs]


@pytest.mark.parametrize(("snippet", "command"), HERE, ids=places(HERE))
def test_a_command_of_the_documents_runs(platform: Platform, snippet: Snippet, command: str) -> None:
    env = platform.env | {"PATH": f"{Path(sys.executable).parent}:{platform.env['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", command], cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{snippet.place}: {command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize(("command", "runner"), ELSEWHERE.items())
def test_a_command_that_is_not_run_here_is_run_by_the_file_that_is_named(command: str, runner: str) -> None:
    words = command.removeprefix("./").split()
    used = [ROOT / runner, *(ROOT / runner).parent.glob("*.py"), ROOT / "tests/client/embedded.py"]
    text = "\n".join(path.read_text() for path in used)
    assert all(re.search(rf"\b{re.escape(Path(word).name)}\b", text) for word in words)


@pytest.mark.parametrize("snippet", snippets("python"), ids=lambda snippet: snippet.place)
def test_a_program_of_the_documents_runs(platform: Platform, snippet: Snippet, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(snippet.text))
    job = platform.job("job-1", sys.executable, str(program))
    job.ends()


@pytest.mark.parametrize("snippet", snippets("yaml"), ids=lambda snippet: snippet.place)
def test_a_groups_or_tokens_file_of_the_documents_is_a_good_one(snippet: Snippet) -> None:
    from timeslice_orchestrator.access import tokens_file
    from timeslice_orchestrator.discovery import groups_file

    content = yaml.safe_load(snippet.text)
    if "tokens" in content:
        assert len(tokens_file.parsed(snippet.text, snippet.place)) == len(content["tokens"])
    else:
        found = {group.group_id for group in groups_file.parsed(snippet.text, snippet.place)}
        assert content["groups"].keys() == found


def test_the_commands_that_make_tokens_make_a_good_tokens_file(tmp_path: Path) -> None:
    from timeslice_orchestrator.access import tokens_file

    (snippet,) = (each for each in snippets("text") if "timeslice token" in each.text)
    *making, _ = commands(snippet)
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run(["bash", "-euc", "\n".join(making)], cwd=tmp_path, env=env, check=True, timeout=60)
    found = tokens_file.parsed((tmp_path / "tokens.yaml").read_text(), "tokens.yaml")
    assert [caller.name for caller in found.values()] == ["token 'node-1'", "token 'job-a'"]


def test_links_between_the_documents_lead_to_files_that_exist() -> None:
    broken = [
        f"{document.relative_to(ROOT)}: {target}"
        for document in DOCUMENTS
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text())
        if not (document.parent / target).exists()
    ]
    assert not broken


def test_a_test_that_the_documents_name_exists() -> None:
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for document in DOCUMENTS for name in re.findall(r"`(test_\w+)`", document.read_text())}
    assert named
    assert not [name for name in sorted(named) if f"def {name}(" not in written]
