"""`python -m timeslice_chaos.launcher LOGS ROLE [ARGUMENT ...]`: a process of the world, with faults at its points.

The product's code has no hooks: its functions are wrapped here before it starts. Time limits are shortened, so that
what takes minutes in production happens within seconds.
"""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from timeslice_chaos import armory
from timeslice_chaos.armory import Armory
from timeslice_chaos.log import Log
from timeslice_chaos.points import POINTS

LEASE_TTL_S, LEASE_GRACE_S = 4.0, 3.0


def main() -> int:
    """Does not return before the process of that role has ended."""
    folder, role, *arguments = sys.argv[1:]
    log = Log(Path(folder), role)
    own, clock = Armory(log), _clock(log)  # before anybody keeps a clock of his own
    _PREPARE[role]()
    for point in POINTS[role]:
        armory.install(point, own)
    armory.listen(own, [clock, *([_child(folder, arguments[0])] if role == "job" else [])])
    log.say("started", ppid=os.getppid())
    if role == "job":
        from timeslice_chaos import job

        return job.main(log, arguments)
    from timeslice.cli.main import main as timeslice

    return timeslice([role, *arguments])


def _clock(log: Log) -> Callable[[str], bool]:
    """`clock SECONDS` makes the clocks of the process jump ahead by that much; below zero, only that of the wall, since
    the monotonic one never goes back."""
    _keep_deadlines()
    jumped, real = {"monotonic": 0.0, "time": 0.0}, SimpleNamespace(**vars(time))
    time.monotonic = lambda: real.monotonic() + jumped["monotonic"]
    time.time = lambda: real.time() + jumped["time"]

    def take(line: str) -> bool:
        if not line.startswith("clock "):
            return False
        by = float(line.removeprefix("clock "))
        for name in jumped if by > 0 else ("time",):
            jumped[name] += by
        log.say("clock", by=by)
        return True

    return take


def _keep_deadlines() -> None:
    """Deadlines go from gRPC's Python as points of time to its core, which looks at the machine's clock, and would be
    off by the jump for every call from then on: no clock that jumps does that."""
    real = SimpleNamespace(**vars(time))
    for module in ("grpc._channel", "grpc.aio._utils"):
        vars(importlib.import_module(module))["time"] = real


def _child(folder: str, job_id: str) -> Callable[[str], bool]:
    """`child SECONDS` starts a further process of the job."""

    def take(line: str) -> bool:
        if not line.startswith("child "):
            return False
        command = [sys.executable, "-m", "timeslice_chaos.child", folder, job_id, line.removeprefix("child ")]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        threading.Thread(target=child.wait, daemon=True).start()
        return True

    return take


def _hasten_orchestrator() -> None:
    from timeslice_orchestrator import config
    from timeslice_orchestrator.core.model import Settings

    hasty = Settings(
        lease_ttl_s=LEASE_TTL_S,
        lease_grace_s=LEASE_GRACE_S,
        waiter_grace_s=3.0,
        restart_grace_s=6.0,
        lock_timeout_s=3.0,
        command_timeout_s=10.0,
        retry_max_s=1.0,
    )
    whole = config.OrchestratorConfig
    config.OrchestratorConfig = lambda *given, **named: whole(*given, settings=hasty, **named)  # type: ignore[assignment, misc]


def _hasten_node() -> None:
    from timeslice_driver import config
    from timeslice_driver.backends.cuda import Limits

    hasty = Limits(query_s=3.0, lock_slack_s=2.0, unlock_s=3.0, copy_base_s=3.0)
    whole = config.NodeConfig
    config.NodeConfig = lambda **named: replace(whole(**named), limits=hasty, look_interval_s=0.5)  # type: ignore[assignment, misc]


def _as_it_is() -> None:
    """Jobs have the client's own time limits."""


_PREPARE = {"orchestrator": _hasten_orchestrator, "node": _hasten_node, "job": _as_it_is}


if __name__ == "__main__":
    sys.exit(main())
