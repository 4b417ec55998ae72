"""`timeslice doctor`: what on this machine would keep jobs from being parked, each with the mend."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from timeslice.cli.node import add_machine, config_of
from timeslice.cli.options import NODE_SOCKET, Subparsers, add_command, add_state_dir, state_dir

if TYPE_CHECKING:
    from timeslice_driver.doctor import Check

EXAMPLES = """\
  timeslice doctor           on the machine with the GPUs, in the environment of a job
  timeslice doctor --json    a list of {"name", "verdict": "ok" | "warn" | "fail", "found", "mend"}
"""
_MARKS = {"ok": "ok  ", "warn": "WARN", "fail": "FAIL"}


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "doctor", summary="check this machine and environment for what would break a park", examples=EXAMPLES
    )
    parser.add_argument("--json", action="store_true", help="a list of checks")
    add_machine(parser)
    add_state_dir(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the checks; 1 when one of them says that nothing can be parked."""
    directory = state_dir(arguments)
    config = config_of(arguments, directory=directory / "node", socket_path=directory / NODE_SOCKET)
    from timeslice_driver.doctor import examine

    checks = asyncio.run(examine(config, os.environ))
    print(_as_json(checks) if arguments.json else _as_text(checks))
    return int(any(check.verdict == "fail" for check in checks))


def _as_json(checks: Iterable[Check]) -> str:
    return json.dumps(
        [{"name": check.name, "verdict": check.verdict, "found": check.found, "mend": check.mend} for check in checks],
        indent=2,
    )


def _as_text(checks: Iterable[Check]) -> str:
    lines = []
    for check in checks:
        lines.append(f"{_MARKS[check.verdict]}  {check.name}: {check.found}")
        if check.mend:
            lines.append(f"      {check.mend}")
    return "\n".join(lines)
