"""Command lines of the documents against the parsers of the programs themselves."""

from __future__ import annotations

import io
import re
import shlex
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import cache

import pytest
from comparison import __main__ as demo
from kube_cluster import cli as cluster
from shown import ROOT
from timeslice.cli.main import parser_of_all
from timeslice_bench import __main__ as bench
from timeslice_chaos import __main__ as chaos

PARSERS: dict[str, Callable[[list[str]], object]] = {
    "timeslice": lambda words: parser_of_all().parse_args(words),
    "./hack/demo": demo.parsed,
    "./hack/bench": bench.parsed,
    "./hack/cluster": cluster.parsed,
    "./hack/test chaos": chaos.parsed,
}
WITH_SUBCOMMANDS = {"timeslice", "./hack/cluster"}
_ENDS = re.compile(r"^(\|\||&&|;|\||>>?|<)$")  # of a command within a line


def simple_commands(line: str) -> list[list[str]]:
    """The commands of a line, without variables before them and without what the shell does with their output."""
    found: list[list[str]] = [[]]
    words = iter(shlex.split(line, comments=True))
    for word in words:
        if _ENDS.match(word):
            if word in {">", ">>", "<"}:
                next(words)
            else:
                found.append([])
        elif found[-1] or not re.match(r"^[A-Z_]+=", word):
            found[-1].append(word)
    return [each for each in found if each]


def program_of(words: list[str]) -> str | None:
    """Which of our programs a command runs."""
    text = " ".join(words)
    return next((name for name in PARSERS if re.search(rf"^{re.escape(name)}(\s|$)", text)), None)


def parse(words: list[str]) -> None:
    """Gives the command to its parser; AssertionError when that refuses it."""
    program = program_of(words)
    assert program
    rest = " ".join(map(shlex.quote, words)).partition(program)[2]
    try:
        PARSERS[program](shlex.split(rest))
    except SystemExit as end:
        if end.code != 0:
            raise AssertionError(f"{program} does not know: {rest}") from end


def options_for(text: str) -> set[str]:
    """The options of the program that a text names; of all programs, when it names none."""
    program = program_of(text.split())
    if program is None:
        own = set(re.findall(r"--[a-z-]+", (ROOT / "hack/test").read_text()))  # a shell script
        return own.union(*(options_for(name) for name in PARSERS))
    helps = (_help(program, *rest) for rest in _subcommands(program, text))
    return {option for said in helps for option in re.findall(r"--[a-z][a-z-]+", said)}


def _subcommands(program: str, text: str) -> list[tuple[str, ...]]:
    if program not in WITH_SUBCOMMANDS:
        return [()]
    all_of_them = re.findall(r"^    ([a-z]+)\b", _help(program), re.MULTILINE)
    return [(name,) for name in all_of_them if name in text.split()] or [(name,) for name in all_of_them]


@cache
def _help(program: str, *rest: str) -> str:
    said = io.StringIO()
    with redirect_stdout(said), pytest.raises(SystemExit):
        PARSERS[program]([*rest, "--help"])
    return said.getvalue()
