"""`timeslice run`: runs a command as a job."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

import grpc
from timeslice_api import names
from timeslice_api.errors import ConfigError, TimesliceError
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import snapshot_agent_pb2, snapshot_agent_pb2_grpc

from timeslice import OrchestratorClient, install_signal_handlers
from timeslice.channel import open_channel, unix_address
from timeslice.cli.options import (
    Subparsers,
    add_command,
    add_option,
    add_orchestrator,
    node_socket,
    orchestrator_address,
)

EXAMPLES = """\
  timeslice run --job job-a --group trainer-group -- python train.py
  timeslice run --job eval --group trainer-group --hold -- python eval.py   knows nothing of timeslice
"""
EXIT_NOT_RUN, EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND = 125, 126, 127  # as env(1), timeout(1) and shells have it
REGISTER_TIMEOUT_S = 10.0
FORWARDED = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
OF_THE_TERMINAL = (signal.SIGINT, signal.SIGQUIT)  # a terminal sends them to the command as well


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "run",
        summary="run a command as a job: its processes are registered with the node, its environment is set",
        examples=EXAMPLES,
    )
    add_option(parser, "--job", env=names.ENV_JOB_ID, text="name of the job", metavar="JOB")
    parser.add_argument(
        "--group",
        action="append",
        metavar="GROUP",
        help=f"may be repeated; the first is the default of acquire() [env {names.ENV_GROUP_ID}]",
    )
    parser.add_argument("--hold", action="store_true", help="hold the groups while the command runs")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="with --hold: how long to wait at most")
    parser.add_argument("--no-node", action="store_true", help="register with no node: nothing will be parked")
    add_orchestrator(parser)
    add_option(parser, "--node-socket", env=names.ENV_NODE_SOCKET, text="of the node on this machine", metavar="PATH")
    parser.add_argument("argv", nargs="+", metavar="CMD", help="after --")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Runs the command; its exit status, 128 + number for a signal, 125 when it was not run."""
    try:
        job, groups = _job_and_groups(arguments)
        socket = _socket(arguments)
        environment = {
            names.ENV_ORCHESTRATOR: orchestrator_address(arguments),
            names.ENV_JOB_ID: job,
            names.ENV_GROUP_ID: groups[0],
            names.ENV_NODE_SOCKET: socket,  # empty with --no-node, whatever was set before
            names.ENV_TOKEN_FILE: str(Path(arguments.token_file).absolute()) if arguments.token_file else "",
            **_tls_environment(arguments),
        }
        if socket:
            _register(socket, job, groups)
        if not arguments.hold:
            return _replaced_by(arguments.argv, environment)
        install_signal_handlers()  # while it waits, SIGTERM takes its request out of the queue
        client = OrchestratorClient(
            environment[names.ENV_ORCHESTRATOR],
            job_id=job,
            node_socket="",
            token_file=environment[names.ENV_TOKEN_FILE],
            tls_ca=arguments.tls_ca,
            tls_cert=arguments.tls_cert,
            tls_key=arguments.tls_key,
        )
        with client, client.on_accelerators(groups, timeout=arguments.timeout):
            return _child(arguments.argv, environment)
    except TimesliceError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_NOT_RUN


def _job_and_groups(arguments: argparse.Namespace) -> tuple[str, list[str]]:
    default = os.environ.get(names.ENV_GROUP_ID)
    groups = arguments.group or ([default] if default else [])
    if not arguments.job or not groups:
        raise ConfigError("--job and --group are needed", hint="timeslice run --job J --group G -- CMD")
    return names.checked_name(arguments.job, "job"), [names.checked_name(group, "group") for group in groups]


def _tls_environment(arguments: argparse.Namespace) -> dict[str, str]:
    files = {
        names.ENV_TLS_CA: arguments.tls_ca,
        names.ENV_TLS_CERT: arguments.tls_cert,
        names.ENV_TLS_KEY: arguments.tls_key,
    }
    return {name: str(Path(path).absolute()) for name, path in files.items() if path}


def _socket(arguments: argparse.Namespace) -> str:
    if arguments.no_node:
        return ""
    socket = node_socket(arguments)
    if not socket:
        hint = f"set {names.ENV_NODE_SOCKET} or --node-socket, start one with `timeslice up`, or say --no-node"
        raise ConfigError("no node is known, so the command's processes could not be parked", hint=hint)
    return names.checked_socket_path(socket, "node_socket")


def _register(socket: str, job: str, groups: list[str]) -> None:
    """Registers this process, before the command exists, so that nothing of it is missed; descendants belong to it."""
    with open_channel(unix_address(socket)) as channel:
        agent = snapshot_agent_pb2_grpc.SnapshotAgentStub(channel)
        for group in groups:
            request = snapshot_agent_pb2.RegisterRequest(job_id=job, group_id=group, pid=os.getpid())
            try:
                agent.Register(request, timeout=REGISTER_TIMEOUT_S)
            except grpc.RpcError as error:
                raise from_rpc(error) from error


def _replaced_by(argv: list[str], environment: dict[str, str]) -> int:
    """This process becomes the command: signals and exit status are its own. Returns only when that fails."""
    try:
        os.execvpe(argv[0], argv, {**os.environ, **environment})
    except OSError as error:
        return _not_started(argv, error)


def _child(argv: list[str], environment: dict[str, str]) -> int:
    early: list[int] = []
    child: subprocess.Popen[bytes] | None = None

    def forward(number: int, frame: FrameType | None) -> None:
        if child is None:
            early.append(number)
        elif number not in OF_THE_TERMINAL or not _in_foreground():
            child.send_signal(number)

    for forwarded in (*FORWARDED, *OF_THE_TERMINAL):
        signal.signal(forwarded, forward)
    try:
        child = subprocess.Popen(argv, env={**os.environ, **environment})
    except OSError as error:
        return _not_started(argv, error)
    for number in early:
        child.send_signal(number)
    status = child.wait()
    return status if status >= 0 else 128 - status


def _in_foreground() -> bool:
    try:
        return os.tcgetpgrp(0) == os.getpgrp()
    except OSError:  # standard input is no terminal
        return False


def _not_started(argv: list[str], error: OSError) -> int:
    print(f"error: cannot run {argv[0]}: {error.strerror}", file=sys.stderr)
    return EXIT_NOT_FOUND if isinstance(error, FileNotFoundError) else EXIT_NOT_EXECUTABLE
