from __future__ import annotations

from pathlib import Path

from comparison.__main__ import JOBS

README = Path(__file__).parents[2] / "README.md"


def test_the_readme_names_the_tasks_and_seeds_of_the_demonstration() -> None:
    text = " ".join(README.read_text().split())
    assert len(JOBS) == 2
    for job in JOBS:
        assert f"`{job.name}`: `{job.task}` with seed {job.seed}" in text
