"""What a newcomer meets when the machine lacks something that `hack/venv` needs, or only a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Debian's python3 without python3-venv leaves half an environment behind.
WITHOUT_VENV = """#!/bin/sh
[ "$1" = -m ] || exit 0
mkdir -p .venv/bin && cp /bin/true .venv/bin/python
exit 1
"""
TOO_OLD = "#!/bin/sh\nexit 1\n"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("python", "message"),
    [(WITHOUT_VENV, "apt-get install python3-venv"), (TOO_OLD, "Python 3.11 or newer; set PYTHON=")],
    ids=["without venv", "too old"],
)
def test_what_is_missing_is_named_and_nothing_half_made_stays(tmp_path: Path, python: str, message: str) -> None:
    (tmp_path / "hack").mkdir()
    for name in ("hack/venv", "hack/constraints.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path / name)
    stand_in = tmp_path / "python3"
    stand_in.write_text(python)
    stand_in.chmod(0o755)
    done = subprocess.run(
        [str(tmp_path / "hack/venv")],
        env={**os.environ, "PYTHON": str(stand_in)},
        capture_output=True,
        text=True,
        timeout=10,
        check=False,
    )
    assert done.returncode == 1
    assert message in done.stderr.splitlines()[-1]
    assert not (tmp_path / ".venv").exists()


@pytest.mark.long
@pytest.mark.processes
@pytest.mark.timeout(900)
def test_without_a_c_compiler_the_emulator_is_built_by_the_one_in_the_wheel_and_works(tmp_path: Path) -> None:
    here = tmp_path / "checkout"
    shutil.copytree(ROOT, here, ignore=shutil.ignore_patterns(".venv", ".git", "lib", "__pycache__", ".*_cache"))
    command = ["hack/test", "tests/emulator/test_memory.py", "tests/emulator/test_checkpoint.py"]
    env = {**os.environ, "CC": str(tmp_path / "no-compiler")}
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True, timeout=880, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "no C compiler found: installing the one in the ziglang wheel" in done.stderr
    assert (here / "hack/gpu-emulator/lib/libcuda.so.1").exists()
