"""A short run with the worst faults of a hand-off, whose log is clean; `hack/test chaos` goes on from here."""

from __future__ import annotations

import json
import random
import subprocess
from itertools import islice
from pathlib import Path

import pytest
from timeslice_chaos.armory import Arm
from timeslice_chaos.deck import Fault, deal, faults
from timeslice_chaos.report import to_json
from timeslice_chaos.run import _dealt, run

ROOT = Path(__file__).resolve().parents[2]
WORST = (
    Fault("kill", "orchestrator", "grant-sent", Arm("grant-sent", "kill")),
    Fault("kill", "node", "checkpointed", Arm("checkpointed", "kill", after=True)),
    Fault("gpu", "gpu", "restore", gpu={"call": "restore", "nth": 1, "kill_target": True}),
    Fault("twice", "node", "command-taken", Arm("command-taken", "twice")),
    Fault("kill", "holder"),
)


@pytest.mark.processes
@pytest.mark.timeout(200)
def test_every_promise_is_kept_through_faults_in_the_middle_of_hand_offs() -> None:
    report = run(1, seconds=120, faults=WORST)
    assert not report.violations, report.text()
    assert sorted(report.faults) == sorted((fault.kind, fault.where) for fault in WORST), report.text()
    assert report.handoffs > len(WORST)
    told = json.loads(to_json([report]))
    assert told["violations"] == 0
    assert told["runs"][0]["recovery_s"]["max"] >= told["runs"][0]["recovery_s"]["p50"] > 0


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(200)
def test_the_command_writes_a_report_of_its_seed(tmp_path: Path) -> None:
    told = tmp_path / "report.json"
    command = [str(ROOT / "hack/test"), "chaos", "--seed", "1", "--minutes", "0.02", "--json", str(told)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(told.read_text())["violations"] == 0


def test_each_role_is_killed_and_stopped_at_each_step_of_a_hand_off() -> None:
    steps = {"lock": "locked", "checkpoint": "checkpointed", "restore": "restored", "unlock": "unlocked"}
    struck = {(fault.kind, fault.role, fault.during) for fault in faults()}
    around = {(fault.kind, fault.role, fault.point, fault.arm.after) for fault in faults() if fault.arm}
    for kind in ("kill", "stop"):
        for call, point in steps.items():
            assert {(kind, role, call) for role in ("orchestrator", "helper", "mover", "waiter")} <= struck
            assert {(kind, "node", point, after) for after in (False, True)} <= around


def test_a_seed_reproduces_which_faults_strike_together() -> None:
    hands, again, other = (islice(_dealt(faults(), seed, random.Random(seed)), 50) for seed in (7, 7, 8))
    struck = list(hands)
    assert struck == list(again) != list(other)
    assert {len(together) for together in struck} == {1, 2, 3}


def test_a_seed_deals_every_fault_once_before_any_comes_again_and_always_in_the_same_order() -> None:
    count = len(faults())
    hand, again, other = (list(islice(deal(faults(), seed), 2 * count)) for seed in (7, 7, 8))
    assert hand == again != other
    for half in (hand[:count], hand[count:]):
        assert sorted(map(repr, half)) == sorted(map(repr, faults()))
