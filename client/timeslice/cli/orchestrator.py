"""`timeslice orchestrator`: only the orchestrator."""

from __future__ import annotations

import argparse

from timeslice.channel import unix_address
from timeslice.cli import serving
from timeslice.cli.options import (
    ORCHESTRATOR_SOCKET,
    Subparsers,
    add_command,
    add_groups,
    add_logging,
    add_state_dir,
    made,
    state_dir,
)

EXAMPLES = """\
  timeslice orchestrator --listen 10.0.0.1:7070 --groups groups.yaml
  timeslice node --orchestrator 10.0.0.1:7070          on each machine with GPUs
"""


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(commands, "orchestrator", summary="run only the orchestrator", examples=EXAMPLES)
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="host:port or unix:///path, may be repeated; default: a socket in the state directory",
    )
    add_groups(parser)
    add_state_dir(parser)
    add_logging(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs until SIGTERM or Ctrl-C."""
    from timeslice_orchestrator.config import OrchestratorConfig
    from timeslice_orchestrator.server import Orchestrator

    serving.configure_log(arguments)
    directory = made(state_dir(arguments))
    listen = tuple(arguments.listen or [unix_address(str(directory / ORCHESTRATOR_SOCKET))])
    service = Orchestrator(OrchestratorConfig(directory / "orchestrator", listen, arguments.groups))

    def ready() -> None:
        for address in service.addresses:
            print(f"export TIMESLICE_ORCHESTRATOR={address}", flush=True)

    return serving.serve(lambda: [service], ready)
