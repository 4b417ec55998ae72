"""`timeslice doctor`: what on this machine would keep jobs from being parked, each with the mend."""

from __future__ import annotations

import argparse

from timeslice.cli import serving
from timeslice.cli.options import Subparsers, add_command

EXAMPLES = """\
  timeslice doctor           in the environment of the job, on the machine with the GPUs
  timeslice doctor --json
"""


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "doctor", summary="check this machine and environment for what would break a park", examples=EXAMPLES
    )
    parser.add_argument("--json", action="store_true", help="a list of findings")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Prints the findings; 1 when one of them must be mended."""
    try:
        from timeslice_driver import doctor
    except ModuleNotFoundError as error:
        raise serving.missing("node", error) from error
    return int(doctor.main(as_json=arguments.json))
