"""The protos are the contract's reference: every field, call and value says what it means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import timeslice_api.v1alpha1

PROTOS = sorted(Path(timeslice_api.v1alpha1.__path__[0]).glob("*.proto"))
DECLARATION = re.compile(r"\s+((repeated )?[\w.]+ \w+ = \d+;|[A-Z_]+ = \d+;|rpc \w+)")
SIZE_OR_TIME = re.compile(r"\s+(repeated )?(double (?!duty_cycle)\w+|uint64 \w*bytes\w*) = \d+;(?P<comment>.*)")
HAS_ITS_UNIT_ABOVE = "Timings"


def undocumented(text: str) -> list[str]:
    lines = text.splitlines()
    return [
        line.strip()
        for before, line in zip(["", *lines], lines, strict=False)
        if DECLARATION.match(line) and "//" not in line and not before.strip().startswith("//")
    ]


def test_the_protos_are_there() -> None:
    assert len(PROTOS) == 4


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_every_field_call_and_value_of_the_protocol_says_what_it_means(proto: Path) -> None:
    assert undocumented(proto.read_text()) == []


@pytest.mark.parametrize("proto", PROTOS, ids=lambda path: path.stem)
def test_every_time_and_size_of_the_protocol_says_its_unit(proto: Path) -> None:
    messages = re.findall(r"^message (\w+) \{\n(.*?)^\}", proto.read_text(), re.MULTILINE | re.DOTALL)
    assert [
        line
        for message, body in messages
        if message != HAS_ITS_UNIT_ABOVE
        for line in body.splitlines()
        if (found := SIZE_OR_TIME.match(line)) and not re.search("second|byte", found["comment"])
    ] == []
