"""The tokens file: what a good one means, and that a bad one is told with line and field."""

from __future__ import annotations

from pathlib import Path

import pytest
from network import ENTRIES, token_of, write_tokens
from timeslice_api.errors import ConfigError, Unauthenticated
from timeslice_orchestrator.access.caller import Kind
from timeslice_orchestrator.access.tokens_file import FileTokens, digest_of, parsed

D1, D2 = digest_of("one"), digest_of("two")


def test_each_entry_says_who_its_token_is_and_for_what() -> None:
    text = f"""tokens:
- {{name: trainers, token_sha256: "{D1}", role: job, jobs: [job-a, job-b], groups: [g]}}
- {{name: first, token_sha256: "{D2.upper()}", role: node, node: node-1}}
"""
    found = parsed(text, "t.yaml")
    job, node = found[D1], found[D2]
    assert (job.kind, job.jobs, job.groups) == (Kind.JOB, frozenset({"job-a", "job-b"}), frozenset({"g"}))
    assert (node.kind, node.node) == (Kind.NODE, "node-1")


async def test_a_token_is_known_by_its_digest_alone(tmp_path: Path) -> None:
    tokens = FileTokens(write_tokens(tmp_path / "t.yaml", *ENTRIES))
    assert token_of("trainers") not in (tmp_path / "t.yaml").read_text()
    assert (await tokens.caller(token_of("trainers"))).name == "token 'trainers'"
    for other in ("", "x", digest_of(token_of("trainers")), token_of("trainers") + " "):
        with pytest.raises(Unauthenticated, match="does not know this token"):
            await tokens.caller(other)


async def test_a_bad_file_leaves_the_last_good_one_in_force(tmp_path: Path) -> None:
    path = write_tokens(tmp_path / "t.yaml", "trainers")
    tokens = FileTokens(path)
    path.write_text("tokens: [")
    with pytest.raises(ConfigError, match="line 1"):
        tokens.read()
    assert await tokens.caller(token_of("trainers"))
    write_tokens(path, "operators")
    tokens.read()
    with pytest.raises(Unauthenticated):
        await tokens.caller(token_of("trainers"))


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ('{name: a, token_sha256: "%s"}', r"line 2: tokens\[0\]\.role is missing"),
        ("{name: a, role: job}", r"tokens\[0\]\.token_sha256 is missing"),
        ('{token_sha256: "%s", role: job}', r"tokens\[0\]\.name is missing"),
        ('{name: a, token_sha256: "%s", role: root}', r"role is 'root'; it may be job, node, admin"),
        ('{name: a, token_sha256: "%s", role: admin, jobs: [j]}', r"jobs is not for role admin"),
        ('{name: a, token_sha256: "%s", role: node}', r"tokens\[0\]\.node is missing"),
        ('{name: a, token_sha256: "%s", role: job, jobs: [../b]}', r"jobs\[0\] '../b' is not a name"),
        ('{name: a, token_sha256: "%s", role: job, token: x}', r"token is not known here"),
        ("{name: a, token_sha256: abc, role: job}", r"is no SHA-256"),
        ("{name: a, token_sha256: 12, role: job}", r"put it in quotes"),
    ],
)
def test_what_is_wrong_is_told_with_line_and_field(entry: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        parsed("tokens:\n- " + entry.replace("%s", D1), "t.yaml")


def test_a_token_or_a_name_that_is_there_twice_is_an_error() -> None:
    entry = '- {{name: {}, token_sha256: "{}", role: admin}}\n'
    for pair in ((("a", D1), ("b", D1)), (("a", D1), ("a", D2))):
        text = "tokens:\n" + "".join(entry.format(*each) for each in pair)
        with pytest.raises(ConfigError, match=r"line 3.*is there twice; first in line 2"):
            parsed(text, "t.yaml")
