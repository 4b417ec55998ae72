"""`timeslice release`: takes a group away from the job that holds it."""

from __future__ import annotations

import argparse

from timeslice_api.errors import ConfigError
from timeslice_api.v1alpha1 import orchestrator_pb2

from timeslice.cli.asking import ask, orchestrator
from timeslice.cli.options import Subparsers, add_command, add_orchestrator, name_of

EXAMPLES = """\
  timeslice release --force trainer-group              whoever holds it
  timeslice release --force trainer-group --job job-a  only if job-a does
"""


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "release", summary="take a group away from its holder; its state is parked first", examples=EXAMPLES
    )
    parser.add_argument("group", metavar="GROUP", type=name_of("group"))
    parser.add_argument("--job", type=name_of("job"), help="only the leases of this job")
    parser.add_argument("--force", action="store_true", help="needed, since the job may be in the middle of a phase")
    add_orchestrator(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Takes the leases away, and says how many."""
    if not arguments.force:
        raise ConfigError("a release interrupts a phase that is running", hint="add --force to do it")
    request = orchestrator_pb2.ForceReleaseRequest(group_id=arguments.group, job_id=arguments.job)
    with orchestrator(arguments) as stub:
        released = ask(stub.ForceRelease, request).lease_ids
    if released:
        print(f"released {arguments.group}: {len(released)} lease{'s' if len(released) > 1 else ''} taken away")
    else:
        print(f"nobody{f' of {arguments.job}' if arguments.job else ''} holds {arguments.group}")
    return 0
