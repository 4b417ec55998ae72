"""`timeslice resume`: ends a drain."""

from __future__ import annotations

import argparse

from timeslice_api.v1alpha1 import orchestrator_pb2

from timeslice.cli.asking import ask, orchestrator
from timeslice.cli.options import Subparsers, add_command, add_orchestrator, name_of

EXAMPLES = "  timeslice resume trainer-group\n"


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(commands, "resume", summary="serve a drained group again", examples=EXAMPLES)
    parser.add_argument("group", metavar="GROUP", type=name_of("group"))
    add_orchestrator(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Resumes."""
    with orchestrator(arguments) as stub:
        ask(stub.Resume, orchestrator_pb2.ResumeRequest(group_id=arguments.group))
    print(f"{arguments.group} is served again")
    return 0
