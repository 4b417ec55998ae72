"""`timeslice node`: only the node, which parks and restores the jobs of one machine.

With --kubernetes it is the kubelet plugin too; its options are in node_on_kubernetes.py.
"""

from __future__ import annotations

import argparse
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from timeslice_api.errors import ConfigError
from timeslice_api.tls import TlsFiles

from timeslice.cli import groups, node_on_kubernetes, serving
from timeslice.cli.options import (
    NODE_SOCKET,
    Subparsers,
    add_command,
    add_logging,
    add_option,
    add_orchestrator,
    add_state_dir,
    state_dir,
    tls_of_dialler,
)

if TYPE_CHECKING:
    from timeslice_driver.config import NodeConfig

EXAMPLES = """\
  timeslice node --orchestrator 10.0.0.1:7070 --token-file node-1.token --group trainer-group
  timeslice node --group trainer-group=GPU-1,GPU-2 --group sampler-group=GPU-3
  timeslice node --kubernetes --orchestrator timeslice-orchestrator.timeslice.svc:7070 --tls-ca /etc/ca/ca.crt \\
    --telemetry-listen :9400 --tls-cert /etc/tls/tls.crt --tls-key /etc/tls/tls.key
"""
BACKENDS = ("auto", "cuda", "cuda-checkpoint")


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(commands, "node", summary="run only the node of this machine", examples=EXAMPLES)
    add_orchestrator(parser)
    text = "unix socket where jobs register; default: in the state directory"
    add_option(parser, "--socket", env="TIMESLICE_NODE_LISTEN", text=text, metavar="PATH", type=Path)
    groups.add_group(parser)
    add_machine(parser)
    node_on_kubernetes.add(parser)
    add_state_dir(parser)
    add_logging(parser)
    parser.set_defaults(run=run)


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Options that say what the machine is like."""
    name = socket.gethostname()
    add_option(parser, "--node-name", env="TIMESLICE_NODE_NAME", text=f"default {name}", default=name, metavar="NAME")
    roots = parser.add_argument_group("where the machine has its things, for containers and tests")
    for flag, env, default in (
        ("--dev-root", "TIMESLICE_DEV_ROOT", "/dev"),
        ("--proc-root", "TIMESLICE_PROC_ROOT", "/proc"),
        ("--cgroup-root", "TIMESLICE_CGROUP_ROOT", "/sys/fs/cgroup"),
    ):
        add_option(roots, flag, env=env, text=f"default {default}", default=default, metavar="DIR", type=Path)
    text = "names this boot of the machine; default: the kernel's"
    add_option(roots, "--boot-id-file", env="TIMESLICE_BOOT_ID_FILE", text=text, metavar="FILE", type=Path)
    add_option(
        roots, "--libcuda", env="TIMESLICE_LIBCUDA", text="default libcuda.so.1", default="libcuda.so.1", metavar="FILE"
    )
    add_option(roots, "--libnvml", env="TIMESLICE_LIBNVML", text="default: searched for", default="", metavar="FILE")
    add_option(roots, "--backend", env="TIMESLICE_BACKEND", text="default auto", default="auto", choices=BACKENDS)
    roots.add_argument(
        "--allow-no-persistence", action="store_true", help="park on devices without persistence mode too"
    )


def config_of(
    arguments: argparse.Namespace,
    *,
    directory: Path,
    socket_path: Path,
    orchestrator: str = "",
    token_file: str = "",
    tls: TlsFiles | None = None,
    declared: Mapping[str, Sequence[str] | str] = {},
) -> NodeConfig:
    """The node's configuration; `declared` are device ids, or `all`, by group."""
    from timeslice_driver.config import NodeConfig

    return NodeConfig(
        state_dir=directory,
        socket=socket_path,
        name=arguments.node_name,
        orchestrator=orchestrator,
        token_file=token_file,
        tls=tls or TlsFiles(),
        groups=declared,
        dev_root=arguments.dev_root,
        proc_root=arguments.proc_root,
        cgroup_root=arguments.cgroup_root,
        boot_id_file=arguments.boot_id_file,
        libcuda=arguments.libcuda,
        libnvml=arguments.libnvml,
        backend=arguments.backend,
        require_persistence=not arguments.allow_no_persistence,
    )


def run(arguments: argparse.Namespace) -> int:
    """Runs until SIGTERM or Ctrl-C. What is parked stays parked; the next start finds it."""
    directory = node_on_kubernetes.state_dir(arguments) if arguments.kubernetes else state_dir(arguments)
    socket_path = (arguments.socket or directory / NODE_SOCKET).absolute()
    config = config_of(
        arguments,
        directory=directory / "node",
        socket_path=socket_path,
        orchestrator=arguments.orchestrator or "",
        token_file=arguments.token_file or "",
        tls=tls_of_dialler(arguments),
        declared={} if arguments.kubernetes else groups.declared(arguments),
    )
    serving.configure_log(arguments)
    if arguments.kubernetes:
        return node_on_kubernetes.run(arguments, config, directory)
    if arguments.telemetry_listen:
        raise ConfigError("--telemetry-listen is for a node with --kubernetes")
    from timeslice_driver.node import Node

    node = Node(config)
    return serving.serve(lambda: [node], serving.ready_line(f"export TIMESLICE_NODE_SOCKET={socket_path}"))
