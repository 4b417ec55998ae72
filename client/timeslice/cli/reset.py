"""`timeslice reset`: lets a job in quarantine take part again, if the driver calls its state sound."""

from __future__ import annotations

import argparse
import json

from timeslice_api.v1alpha1 import orchestrator_pb2

from timeslice.cli.asking import RESET_TIMEOUT_S, ask, orchestrator
from timeslice.cli.options import Subparsers, add_command, add_orchestrator, name_of

EXAMPLES = """\
  timeslice reset job-a                        in all its groups
  timeslice reset job-a --group trainer-group
"""


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "reset",
        summary="ask the driver again for the state of a job in quarantine, and let it take part if that is sound",
        examples=EXAMPLES,
    )
    parser.add_argument("job", metavar="JOB", type=name_of("job"))
    parser.add_argument("--group", type=name_of("group"), help="only in this group")
    parser.add_argument("--json", action="store_true", help="for programs: the job, and the groups where it takes part")
    add_orchestrator(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Resets, and says where the job takes part again."""
    request = orchestrator_pb2.ResetRequest(job_id=arguments.job, group_id=arguments.group)
    with orchestrator(arguments) as stub:
        groups = sorted(ask(stub.Reset, request, timeout_s=RESET_TIMEOUT_S).group_ids)
    if arguments.json:
        print(json.dumps({"job_id": arguments.job, "group_ids": groups}))
    elif groups:
        print(f"{arguments.job} takes part again in {', '.join(groups)}")
    else:
        print(f"{arguments.job} is in no quarantine")
    return 0
