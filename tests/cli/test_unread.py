"""Programs whose output nobody reads any more."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest
from embedded import TIMESLICE
from timeslice_api.unread import EXIT_UNREAD, ends_when_unread

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = (
    (str(TIMESLICE), "run", "--help"),
    ("hack/bench", "--list"),
    ("hack/demo", "--steps", "1"),  # ends at its first line
    ("hack/test", "chaos", "--help"),
    ("hack/cluster", "status"),
)


@pytest.mark.processes
@pytest.mark.timeout(60)
@pytest.mark.parametrize("command", PROGRAMS, ids=" ".join)
def test_a_program_ends_without_a_word_when_nobody_reads_it(command: tuple[str, ...], tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    own = {"TMPDIR": str(tmp_path), "TIMESLICE_CLUSTER_DIR": str(tmp_path), "PYTHONUNBUFFERED": ""}
    try:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=os.environ | own,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=50,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (EXIT_UNREAD, "")
    assert list(tmp_path.iterdir()) == []


def test_another_pipe_that_breaks_is_an_error() -> None:
    @ends_when_unread
    def program() -> int:
        ours, others = socket.socketpair()
        with ours:
            others.close()
            ours.send(b"?")
        return 0

    with pytest.raises(BrokenPipeError):
        program()
