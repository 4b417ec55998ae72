"""A link that a run on a cluster has cut is whole again afterwards, whatever else has struck meanwhile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kube_cluster.machine import run
from timeslice_chaos.cluster.links import unreachable

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a network namespace")

ADDRESS = "192.0.2.7"


@contextmanager
def process(*around: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that runs until it is killed; it has said so."""
    command = [*around, "sh", "-c", "echo; exec sleep 60"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        try:
            assert started.stdout
            started.stdout.readline()
            yield started
        finally:
            started.kill()


def routes(pid: int) -> str:
    return run(["nsenter", f"--target={pid}", "--net", "ip", "route"])


def test_a_pod_whose_process_is_killed_while_it_is_cut_off_is_reachable_again_afterwards() -> None:
    with process("unshare", "--net") as first, process("nsenter", f"--target={first.pid}", "--net") as second:
        with unreachable(first.pid, [ADDRESS]):
            assert f"blackhole {ADDRESS}" in routes(second.pid)
            first.kill()
            first.wait(5)
        assert routes(second.pid) == ""


def test_a_pod_that_ends_while_it_is_cut_off_takes_its_network_with_it() -> None:
    with process("unshare", "--net") as only, unreachable(only.pid, [ADDRESS]):
        only.kill()
        only.wait(5)
