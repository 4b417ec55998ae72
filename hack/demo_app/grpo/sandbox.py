"""The reward phase: sampled answers are run and scored in fresh sandboxed Python processes, as in RL on code."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

PROGRAM = Path(__file__).with_name("sandbox_main.py")
WALL_S = 20.0  # of one program; generous, so that a busy machine changes no reward
TIMEOUT_S = 120.0  # of all


def rewards(task: str, seed: int, answers: Sequence[tuple[int, str]], *, wall_s: float = WALL_S) -> list[float]:
    """Rewards (0 to 1) of answers, each given with the number of its task in the data set.

    One sandbox runs them all. An answer that breaks out of its own process and ends the sandbox earns nothing, and
    neither do the others in it. `wall_s` ends a program that blocks; CPU time and memory have limits of their own.
    """
    # What this process can import, wherever it was installed; absolute, since the sandbox runs in another directory.
    paths = [str(PROGRAM.parent.parent), *(str(Path(entry).absolute()) for entry in sys.path)]
    request = json.dumps({"paths": paths, "task": task, "seed": seed, "answers": list(answers), "wall_s": wall_s})
    with tempfile.TemporaryDirectory(prefix="answers-") as place:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-W", "ignore", str(PROGRAM)],
            input=request.encode(),
            capture_output=True,
            cwd=place,
            env={},
            timeout=TIMEOUT_S,
            check=False,
        )
    if done.returncode < 0:
        return [0.0] * len(answers)
    if done.returncode > 0:
        raise RuntimeError(f"the verifier failed: {done.stderr.decode(errors='replace')[-2000:]}")
    return [float(reward) for reward in json.loads(done.stdout)["rewards"]]
