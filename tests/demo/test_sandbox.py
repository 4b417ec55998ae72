from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from grpo import sandbox
from grpo.tasks import dataset

pytestmark = pytest.mark.processes

SEED = 23
RIGHT = str(dataset("gcd", SEED)[0]["answer"])


def rewards(*answers: str) -> Sequence[float]:
    return sandbox.rewards("gcd", SEED, [(0, answer) for answer in answers])


def test_an_answer_is_run_as_a_program_and_scored_by_what_it_prints() -> None:
    wrong = "0"
    assert rewards(RIGHT, f"{RIGHT}+0", f"{RIGHT}*1", wrong, "", "1-", "*") == [1, 1, 1, 0, 0, 0, 0]


def test_each_answer_is_scored_against_its_own_task() -> None:
    tasks = dataset("gcd", SEED)
    assert sandbox.rewards("gcd", SEED, [(number, tasks[number]["answer"]) for number in range(12)]) == [1.0] * 12


@pytest.mark.parametrize(
    "answer",
    [
        "[0 for _ in iter(int, 1)]",
        "9**9**9",
        "bytearray(10**9)",
        "open('/etc/hostname').read()",
        "__import__('socket').socket()",
        "__import__('os').fork()",
        "'x' * 10**6",
        "__import__('os').kill(__import__('os').getppid(), 9)",
        "__import__('sys').exit(0)",
    ],
)
def test_a_hostile_answer_earns_nothing_and_harms_nobody(answer: str) -> None:
    assert rewards(answer, RIGHT) == [0, 1]


def test_an_answer_that_computes_for_ever_is_ended_by_its_share_of_cpu_time() -> None:
    started = time.monotonic()
    assert rewards("sum(iter(int, 1))") == [0]
    assert time.monotonic() - started < sandbox.WALL_S / 2


def test_an_answer_that_only_sleeps_is_ended_too() -> None:
    started = time.monotonic()
    assert sandbox.rewards("gcd", SEED, [(0, "__import__('time').sleep(60)")], wall_s=0.5) == [0]
    assert time.monotonic() - started < 5


def test_programs_see_neither_the_environment_nor_the_verifier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_SECRET", "1")
    hidden = (
        f"{RIGHT} if 'DEMO_SECRET' not in __import__('os').environ and 'grpo' not in __import__('sys').modules else 0"
    )
    assert rewards(hidden) == [1]


def test_a_failing_verifier_is_an_error_and_not_a_reward() -> None:
    with pytest.raises(RuntimeError, match="the verifier failed"):
        sandbox.rewards("no such task", SEED, [(0, "1")])


def test_the_verifier_is_found_where_the_job_finds_it() -> None:
    """As in an image, whose interpreter has its packages in a folder of the image's own."""
    bare = Path(sys._base_executable)  # type: ignore[attr-defined]
    paths = [str(Path(sandbox.__file__).parents[1]), sysconfig.get_path("purelib")]
    program = f"from grpo import sandbox; print(sandbox.rewards('gcd', {SEED}, [(0, {RIGHT!r})]))"
    done = subprocess.run(
        [bare, "-S", "-c", program],
        env={"PYTHONPATH": os.pathsep.join(paths)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout.strip() == "[1.0]", done.stderr
