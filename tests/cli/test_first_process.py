"""A command as the first process of a container."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_STARTING = """
import time
from timeslice.cli import main, status

def slow_start(arguments):
    print("starting", flush=True)
    time.sleep(60)

status.run = slow_start
raise SystemExit(main.main(["status"]))
"""


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a pid namespace")
@pytest.mark.timeout(60)
def test_the_first_process_of_a_container_ends_at_sigterm_while_it_still_starts() -> None:
    command = ["unshare", "--pid", "--fork", "--kill-child", sys.executable, "-c", _STARTING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as outside:
        try:
            assert outside.stdout
            assert outside.stdout.readline() == "starting\n"
            (first,) = Path(f"/proc/{outside.pid}/task/{outside.pid}/children").read_text().split()
            os.kill(int(first), signal.SIGTERM)
            assert outside.wait(timeout=30) == 128 + signal.SIGTERM
        finally:
            outside.kill()
