"""A node without `privileged`: root with the capabilities that the chart lists sees what it must of others' jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_files import CHART

pytestmark = [pytest.mark.processes, pytest.mark.timeout(30)]

LOOK = """
import json, sys
from pathlib import Path
from typing import Any
from timeslice_driver.processes import ProcFs
procfs, pid = ProcFs(), int(sys.argv[1])
files, environ = sorted(procfs.open_files(pid) or ()), dict(procfs.environ(pid, "TIMESLICE_JOB_ID"))
print(json.dumps({"files": files, "environ": environ, "alive": procfs.identity(pid) is not None}))
"""


# Without another exec: where the root folder is closed to other users, as in some chroots, that one starts nothing.
JOB = """
import ctypes, os, time
os.setgroups([])
os.setgid(65533)
os.setuid(65533)
ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: its files in /proc are its own again, as after an exec
print("another user", flush=True)
time.sleep(60)
"""


@pytest.fixture
def job() -> Iterator[subprocess.Popen[str]]:
    """A process of another user, with a file open."""
    if os.geteuid() != 0:
        pytest.skip("processes of other users are made by root alone")
    with Path("/dev/zero").open("rb") as held:
        process = subprocess.Popen(
            [sys.executable, "-c", JOB],
            stdin=held,
            stdout=subprocess.PIPE,
            env={**os.environ, "TIMESLICE_JOB_ID": "job-a"},
            text=True,
        )
    assert process.stdout is not None
    assert process.stdout.readline() == "another user\n"
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def seen(pid: int, *capabilities: str) -> dict[str, Any]:
    """What root sees with these capabilities and no others."""
    listed = ",".join(["-all", *(f"+{name.lower()}" for name in capabilities)])
    command = ["setpriv", f"--bounding-set={listed}", f"--inh-caps={listed}", "--no-new-privs"]
    looking = [*command, sys.executable, "-c", LOOK, str(pid)]
    done = subprocess.run(looking, capture_output=True, text=True, timeout=20, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def listed() -> list[str]:
    text = (CHART / "templates/node.yaml").read_text()
    block = text[text.index("            drop: [ALL]") : text.index("        terminationMessagePath")]
    return list(yaml.safe_load(block.partition("{{-")[0])["add"])


def test_the_capabilities_of_the_chart_show_the_device_files_and_the_environment_of_any_job(
    job: subprocess.Popen[str],
) -> None:
    found = seen(job.pid, *listed())
    assert "/dev/zero" in found["files"]
    assert found["environ"]["TIMESLICE_JOB_ID"] == "job-a"
    assert found["alive"]


@pytest.mark.parametrize("left_out", listed())
def test_none_of_them_is_there_for_nothing(job: subprocess.Popen[str], left_out: str) -> None:
    found = seen(job.pid, *(name for name in listed() if name != left_out))
    assert not (found["files"] and found["environ"])
