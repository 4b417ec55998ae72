"""The examples run as their first lines say, and without a platform too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from embedded import Platform, environment

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_two_loops_share_a_group(platform: Platform) -> None:
    jobs = [platform.job(name, sys.executable, str(EXAMPLES / "loop.py")) for name in ("job-a", "job-b")]
    lines = [job.ends() for job in jobs]
    assert lines[0] == lines[1]
    assert [line.split(":")[0] for line in lines[0]] == ["step 0", "step 1", "step 2"]


def test_the_loop_runs_without_a_platform() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "loop.py")],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    assert len(done.stdout.splitlines()) == 3
    assert done.stderr.count("timeslice is off") == 1


def test_the_asyncio_loop_holds_and_lends_out(platform: Platform) -> None:
    job = platform.job("job-a", sys.executable, str(EXAMPLES / "asyncio_loop.py"))
    assert job.ends() == [f"step {step}: 4 tool calls, held" for step in range(3)]


def test_ranks_hold_together(platform: Platform, tmp_path: Path) -> None:
    address = platform.state_dir.parent / "ranks"
    ranks = [
        platform.job(
            "job-a",
            "env",
            f"TIMESLICE_RANKS_ADDRESS={address}",
            f"RANK={rank}",
            "WORLD_SIZE=2",
            sys.executable,
            str(EXAMPLES / "ranks.py"),
        )
        for rank in range(2)
    ]
    for rank, job in enumerate(ranks):
        assert job.ends() == [f"rank {rank} of 2: step {step}" for step in range(3)]


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"loop.py", "asyncio_loop.py", "ranks.py"}
