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
from command_lines import options_for, parse, program_of, simple_commands
from embedded import DEVICE_BYTES, Platform
from gpu_emulator.emulator import Emulator
from shown import DOCUMENTS, ROOT, Snippet, commands, snippets
from timeslice.cli.main import COMMANDS

# Commands that take too long here, or serve for ever: the file that runs them, and how it does.
ELSEWHERE = {
    "./hack/demo": ("tests/demo/test_demo_runs.py", 'ROOT / "hack/demo"), "--steps", "3"'),
    "./hack/test chaos": ("tests/chaos/test_run.py", 'ROOT / "hack/test"), "chaos"'),
    "./hack/test": (".ci/run", "\nstep ./hack/test\n"),
    "./hack/lint": (".ci/run", "\nstep ./hack/lint\n"),
    "./hack/bench": ("tests/bench/test_cases.py", 'ROOT / "hack/bench"), "acquire_p50_ms", "--quick"'),
    "timeslice up": ("tests/client/embedded.py", '[str(TIMESLICE), "up"'),
}

# Programs of others, and options of theirs that a sentence names.
FOREIGN = {"docker", "echo", "helm", "kubectl", "openssl", "pip-audit", "python"}
OTHERS_OPTIONS = {"--no-hooks", "--overlap", "--reset-then-reuse-values", "--reuse-values"}
NO_COMMANDS = re.compile(r"(apiVersion|config|env|audit):", re.ASCII)  # objects of Kubernetes, and a log

pytestmark = [pytest.mark.processes, pytest.mark.timeout(90)]
SHELL = [(snippet, command) for snippet in snippets("sh") for command in commands(snippet)]
HERE = [(snippet, command) for snippet, command in SHELL if not any(command.startswith(name) for name in ELSEWHERE)]

OURS = [
    (snippet, words)
    for language in ("sh", "shell", "text")
    for snippet in snippets(language)
    if not NO_COMMANDS.match(snippet.text)
    for command in commands(snippet)
    for words in simple_commands(command)
    if program_of(words)
]


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
def test_a_command_that_is_not_run_here_is_run_by_the_file_that_is_named(command: str, runner: tuple[str, str]) -> None:
    file, call = runner
    assert call in (ROOT / file).read_text()


@pytest.mark.parametrize(("snippet", "words"), OURS, ids=[f"{at.place} {' '.join(words)}" for at, words in OURS])
def test_a_command_of_ours_is_one_that_its_program_knows(snippet: Snippet, words: list[str]) -> None:
    parse(words)


def test_a_command_with_an_option_that_was_renamed_would_be_found() -> None:
    with pytest.raises(AssertionError, match="--no-such"):
        parse(["timeslice", "status", "--no-such"])


def test_every_block_of_plain_text_is_commands_that_are_known_or_is_named_as_something_else() -> None:
    known = {*FOREIGN, "timeslice", "./hack/test"}
    strange = [
        f"{snippet.place}: {command}"
        for snippet in snippets("text")
        if not NO_COMMANDS.match(snippet.text)
        for command in commands(snippet)
        if simple_commands(command)[0][0] not in known
    ]
    assert not strange


def test_an_option_in_a_sentence_is_one_of_the_program_or_of_some_program() -> None:
    unknown = [
        f"{document.relative_to(ROOT)}: {span}"
        for document in DOCUMENTS
        for span in re.findall(r"(?<!`)`([^`\n]+)`(?!`)", document.read_text())
        for option in re.findall(r"(?:^|\s)(--[a-z][a-z-]+)", span)
        if option not in OTHERS_OPTIONS and option not in options_for(span)
    ]
    assert not unknown


def test_every_example_of_the_command_line_is_one_that_it_takes() -> None:
    examples = [
        line.strip()
        for command in COMMANDS
        for line in command.EXAMPLES.replace("\\\n", " ").splitlines()
        if line.strip().startswith(("timeslice ", "TIMESLICE_"))
    ]
    assert len(examples) >= len(COMMANDS)
    for example in examples:
        for words in simple_commands(re.split(r"\s{2,}|\s\(", example)[0]):
            parse(words)


@pytest.mark.parametrize("command", [line for each in snippets("text") for line in commands(each) if "helm" in line])
def test_the_values_that_the_documents_set_are_values_of_the_chart(command: str) -> None:
    values = yaml.safe_load((ROOT / "deployments/helm/timeslice/values.yaml").read_text())
    for pairs in re.findall(r"--set (\S+)", command):
        for pair in pairs.split(","):
            found = values
            for key in pair.partition("=")[0].split("."):
                assert key in found, pair
                found = found[key]


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


def headings(document: Path) -> set[str]:
    """The anchors that a document's headings get."""
    lines = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", line.lower()).replace(" ", "-") for line in lines}


def test_links_between_the_documents_lead_to_files_and_headings_that_exist() -> None:
    pages = [*DOCUMENTS, ROOT / "CHANGELOG.md", *ROOT.glob("hack/*/README.md"), *ROOT.glob("examples/*/README.md")]
    broken = [
        f"{page.relative_to(ROOT)}: {target}#{anchor}"
        for page in pages
        for target, anchor in re.findall(r"\]\(([^)#:]*)#?([^)#:]*)\)", page.read_text())
        if not (to := page.parent / target if target else page).exists() or (anchor and anchor not in headings(to))
    ]
    assert len(pages) >= 8
    assert not broken


def test_a_test_that_the_documents_name_exists() -> None:
    written = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    named = {name for document in DOCUMENTS for name in re.findall(r"`(test_\w+)`", document.read_text())}
    assert named
    assert not [name for name in sorted(named) if f"def {name}(" not in written]
