from __future__ import annotations

import subprocess
import venv
from importlib import metadata
from pathlib import Path

import pytest
from grpo.policy import encode
from grpo.tasks import TASKS, dataset


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_prompt_and_every_right_answer_fits_the_policy(name: str) -> None:
    tasks = dataset(name, 1)
    for number in range(300):
        entry = tasks[number]
        encode(TASKS[name].prompt(entry["question"]), 3)
        encode(entry["answer"], 3)
        assert tasks.score_answer(entry["answer"], entry) == 1


@pytest.mark.parametrize("name", sorted(TASKS))
def test_the_seed_makes_the_tasks(name: str) -> None:
    first, again, other = ([dataset(name, seed)[n]["question"] for n in range(20)] for seed in (1, 1, 2))
    assert first == again != other


def test_a_question_of_another_task_is_refused() -> None:
    with pytest.raises(ValueError, match="not a question of"):
        TASKS["gcd"].prompt("How many 1 bits?")


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(600)
def test_the_light_import_gives_the_tasks_of_the_whole_package(tmp_path: Path) -> None:
    # The whole package draws in what the pinned environment leaves out, so it gets one of its own.
    venv.create(tmp_path / "whole", with_pip=True)
    python = str(tmp_path / "whole" / "bin" / "python")
    version = metadata.version("reasoning-gym")
    subprocess.run([python, "-m", "pip", "install", "-q", f"reasoning-gym=={version}"], timeout=500, check=True)
    whole = (
        "import warnings; warnings.simplefilter('ignore'); import reasoning_gym as r\n"
        "d = r.create_dataset('gcd', seed=23, size=50, min_numbers=2, max_numbers=2, min_value=1, max_value=9)\n"
        "print([d[i]['question'] for i in range(50)])"
    )
    done = subprocess.run([python, "-c", whole], capture_output=True, text=True, timeout=60, check=True)
    tasks = dataset("gcd", 23)
    assert done.stdout.strip() == str([tasks[i]["question"] for i in range(50)])
