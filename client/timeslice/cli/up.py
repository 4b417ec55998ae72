"""`timeslice up`: the whole platform on this machine, in one process."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from timeslice.channel import unix_address
from timeslice.cli import groups, serving
from timeslice.cli.node import add_machine, config_of
from timeslice.cli.options import (
    NODE_SOCKET,
    ORCHESTRATOR_SOCKET,
    Subparsers,
    add_command,
    add_groups,
    add_logging,
    add_state_dir,
    add_tls_of_listener,
    add_tokens,
    made,
    state_dir,
    tls_of_listener,
)

if TYPE_CHECKING:
    from timeslice_driver.node import Node

EXAMPLES = """\
  timeslice up --group trainer-group                     all GPUs of this machine in one group
  timeslice up --group trainer-group=GPU-1 --group sampler-group=GPU-2
  timeslice up --groups groups.yaml
then, in other terminals:
  timeslice run --job job-a --group trainer-group -- python train.py
  timeslice status --watch
"""
LINK_TIMEOUT_S = 30.0


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(
        commands, "up", summary="run orchestrator and node on this machine, in one process", examples=EXAMPLES
    )
    groups.add_group(parser)
    add_groups(parser)
    add_tokens(parser)
    parser.add_argument(
        "--listen", action="append", default=[], metavar="ADDRESS", help="also listen here, host:port or unix:///path"
    )
    add_tls_of_listener(parser)
    add_machine(parser)
    add_state_dir(parser)
    add_logging(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs until SIGTERM or Ctrl-C. Prints what jobs need in their environment, as shell commands."""
    directory = state_dir(arguments)
    from timeslice_orchestrator.config import OrchestratorConfig
    from timeslice_orchestrator.server import Orchestrator

    serving.configure_log(arguments)
    address = unix_address(str(directory / ORCHESTRATOR_SOCKET))
    node_socket = directory / NODE_SOCKET
    config = config_of(
        arguments,
        directory=directory / "node",
        socket_path=node_socket,
        orchestrator=address,
        declared=groups.declared(arguments),
    )
    from timeslice_driver.node import Node

    orchestrator = Orchestrator(
        OrchestratorConfig(
            made(directory) / "orchestrator",
            (address, *arguments.listen),
            arguments.groups,
            arguments.tokens,
            tls=tls_of_listener(arguments),
        )
    )
    node = Node(config)
    return serving.serve(
        lambda: [orchestrator, LinkedNode(node)],
        lambda: print(_environment(orchestrator.addresses[0], node_socket, node), flush=True),
    )


class LinkedNode:
    """A node that has started when its orchestrator knows it, so that nobody meets groups without devices."""

    def __init__(self, node: Node) -> None:
        self._node = node

    async def start(self) -> None:
        """Starts, and waits for the welcome. Raises TimesliceError."""
        await self._node.start()
        await serving.within(LINK_TIMEOUT_S, self._node.linked(), "the node's connection to the orchestrator")

    async def stop(self) -> None:
        """Stops."""
        await self._node.stop()


def _environment(address: str, node_socket: Path, node: Node) -> str:
    held = ", ".join(
        f"{name} ({len(ids)} device{'' if len(ids) == 1 else 's'})" for name, ids in sorted(node.groups.devices.items())
    )
    return "\n".join(
        (
            f"export TIMESLICE_ORCHESTRATOR={address}",
            f"export TIMESLICE_NODE_SOCKET={node_socket}",
            f"# ready: {held or 'no groups'}; Ctrl-C stops it",
        )
    )
