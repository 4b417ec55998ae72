"""Faults that do nothing prove nothing: what strikes in a process is what its name says."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from timeslice_chaos.armory import Arm, Armory, install
from timeslice_chaos.log import Log
from timeslice_chaos.points import Point

CLOCKS = """
import json, sys, time
from pathlib import Path
from timeslice_chaos.launcher import _clock
from timeslice_chaos.log import Log

take = _clock(Log(Path(sys.argv[1]), "job"))
for line in sys.argv[2:]:
    before = time.monotonic(), time.time()
    assert take(line)
    print(round(time.monotonic() - before[0]), round(time.time() - before[1]))
"""


def test_a_clock_jumps_ahead_as_a_whole_and_back_only_on_the_wall(tmp_path: Path) -> None:
    command = [sys.executable, "-c", CLOCKS, str(tmp_path), "clock 60", "clock -3600", "clock 2"]
    told = subprocess.run(command, env={"PYTHONPATH": str(Path(__file__).parent)}, capture_output=True, text=True)
    assert (told.stdout.splitlines(), told.stderr) == (["60 60", "0 -3600", "2 2"], "")


def test_what_comes_twice_is_done_twice_and_the_second_answer_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[str] = []

    def take(message: str) -> int:
        taken.append(message)
        return len(taken)

    module: Any = SimpleNamespace(take=take)
    monkeypatch.setitem(sys.modules, "place_of_a_point", module)
    log = Log(tmp_path, "node")
    armory = Armory(log)
    install(Point("taken", "place_of_a_point:take"), armory)
    armory.take(Arm("taken", "twice").line())
    assert [module.take("first"), module.take("second")] == [2, 3]
    assert taken == ["first", "first", "second"]
    log.close()
