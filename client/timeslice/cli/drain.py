"""`timeslice drain`: no further grants in a group."""

from __future__ import annotations

import argparse

from timeslice_api.v1alpha1 import orchestrator_pb2

from timeslice.cli.asking import ask, orchestrator
from timeslice.cli.options import Subparsers, add_command, add_orchestrator, name_of

EXAMPLES = """\
  timeslice drain trainer-group     holders go on to the end of their phase; then nobody is served
  timeslice resume trainer-group    ends it
"""


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(commands, "drain", summary="give no further grants in a group", examples=EXAMPLES)
    parser.add_argument("group", metavar="GROUP", type=name_of("group"))
    add_orchestrator(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Drains."""
    with orchestrator(arguments) as stub:
        ask(stub.Drain, orchestrator_pb2.DrainRequest(group_id=arguments.group))
    print(f"{arguments.group} is draining")
    return 0
