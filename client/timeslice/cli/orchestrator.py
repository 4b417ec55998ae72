"""`timeslice orchestrator`: only the orchestrator."""

from __future__ import annotations

import argparse
import os
import socket
from pathlib import Path

from timeslice_api.errors import ConfigError

from timeslice.channel import unix_address
from timeslice.cli import serving
from timeslice.cli.options import (
    ORCHESTRATOR_SOCKET,
    Subparsers,
    add_command,
    add_groups,
    add_logging,
    add_option,
    add_state_dir,
    add_tls_of_listener,
    add_tokens,
    made,
    state_dir,
    tls_of_listener,
)

EXAMPLES = """\
  timeslice orchestrator --listen 10.0.0.1:7070 --tls-cert server.pem --tls-key server.key --tokens tokens.yaml
  timeslice node --orchestrator 10.0.0.1:7070 --tls-ca ca.pem --token-file node-1.token     on each machine
on each of two machines that share a folder, of which one leads; their jobs and nodes name both addresses:
  timeslice orchestrator --standby --state-dir /shared/timeslice --listen 10.0.0.1:7070 (and the rest as above)
  timeslice node --orchestrator 10.0.0.1:7070,10.0.0.2:7070 --tls-ca ca.pem --token-file node-1.token
on Kubernetes, in each of two pods, of which one leads:
  timeslice orchestrator --kubernetes --listen [::]:7070 --telemetry-listen :9401 \\
    --tls-cert /etc/tls/tls.crt --tls-key /etc/tls/tls.key
from a machine outside the cluster, for a look at it:
  timeslice orchestrator --kubernetes --kubeconfig admin.yaml --namespace timeslice --listen 127.0.0.1:7070
"""
ENV_KUBERNETES = "TIMESLICE_KUBERNETES"
ENV_LISTEN = "TIMESLICE_LISTEN"
DEFAULT_LEASE = "timeslice-orchestrator"
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_SHORTEST_LEASE_S = 1.0


def add(commands: Subparsers) -> None:
    """Adds the command."""
    parser = add_command(commands, "orchestrator", summary="run only the orchestrator", examples=EXAMPLES)
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ADDRESS",
        help="host:port or unix:///path, may be repeated; default: a socket in the state directory, on Kubernetes "
        f"0.0.0.0:7070 [env {ENV_LISTEN}, several with commas]",
    )
    text = "host:port for /metrics, /healthz and /readyz, by TLS with --tls-cert and --tls-key; default: none"
    add_option(parser, "--telemetry-listen", env="TIMESLICE_TELEMETRY_LISTEN", text=text, metavar="ADDRESS", default="")
    add_tls_of_listener(parser)
    add_groups(parser)
    add_tokens(parser)
    add_state_dir(parser)
    parser.add_argument(
        "--standby",
        action="store_true",
        help="wait while another one has the state directory (of this machine, or of a file system that machines "
        "share), and go on in its place when it ends; start all of them with it",
    )
    _add_kubernetes(parser)
    add_logging(parser)
    parser.set_defaults(run=run)


def _add_kubernetes(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("on Kubernetes, in place of --groups, --tokens and --state-dir")
    group.add_argument(
        "--kubernetes",
        action="store_true",
        default=os.environ.get(ENV_KUBERNETES, "").lower() in {"1", "true", "yes"},
        help="groups are TimesliceGroups, whose status keeps the state; of several processes one leads "
        f"[env {ENV_KUBERNETES}=1]",
    )
    text = "of the Lease; default: that of the pod"
    add_option(group, "--namespace", env="TIMESLICE_NAMESPACE", text=text, metavar="NAME")
    text = f"of the Lease; default {DEFAULT_LEASE}"
    add_option(group, "--lease-name", env="TIMESLICE_LEASE_NAME", text=text, metavar="NAME", default=DEFAULT_LEASE)
    text = "a leader that is silent for so long is replaced; default 15"
    add_option(group, "--lease-duration", env="TIMESLICE_LEASE_DURATION", text=text, metavar="SECONDS", default="15")
    name = socket.gethostname()
    text = f"of this process in the Lease; default {name}"
    add_option(group, "--identity", env="TIMESLICE_IDENTITY", text=text, metavar="NAME", default=name)
    text = "the service account of nodes; default system:serviceaccount:NAMESPACE:timeslice-node"
    add_option(group, "--node-account", env="TIMESLICE_NODE_ACCOUNT", text=text, metavar="USER", default="")
    text = "where the API server is; default: as a pod, else $KUBECONFIG or ~/.kube/config"
    add_option(group, "--kubeconfig", env="TIMESLICE_KUBECONFIG", text=text, metavar="FILE", default="")


def run(arguments: argparse.Namespace) -> int:
    """Runs until SIGTERM or Ctrl-C; on Kubernetes also until it leads no longer."""
    serving.configure_log(arguments)
    return _run_on_kubernetes(arguments) if arguments.kubernetes else _run_alone(arguments)


def _run_alone(arguments: argparse.Namespace) -> int:
    from timeslice_orchestrator.config import OrchestratorConfig
    from timeslice_orchestrator.server import Orchestrator

    directory = made(state_dir(arguments))
    listen = _listen(arguments, unix_address(str(directory / ORCHESTRATOR_SOCKET)))
    config = OrchestratorConfig(
        directory / "orchestrator",
        listen,
        arguments.groups,
        arguments.tokens,
        telemetry_listen=arguments.telemetry_listen,
        standby=arguments.standby,
        tls=tls_of_listener(arguments),
    )
    service = Orchestrator(config)
    return serving.serve(lambda: [service], lambda: _tell(service.addresses))


def _run_on_kubernetes(arguments: argparse.Namespace) -> int:
    if arguments.groups:
        raise ConfigError("--groups is for an orchestrator without --kubernetes", hint="make TimesliceGroups instead")
    if arguments.standby:
        raise ConfigError("--standby is for an orchestrator without --kubernetes", hint="there a Lease says who leads")
    if arguments.tokens:
        raise ConfigError("--tokens is for an orchestrator without --kubernetes", hint="service accounts stand for it")
    from timeslice_orchestrator.config import KubernetesConfig
    from timeslice_orchestrator.kubernetes.orchestrator import KubernetesOrchestrator

    namespace = arguments.namespace or _namespace()
    config = KubernetesConfig(
        namespace=namespace,
        listen=_listen(arguments, "0.0.0.0:7070"),
        identity=arguments.identity,
        lease_name=arguments.lease_name,
        lease_s=_lease_s(arguments.lease_duration),
        telemetry_listen=arguments.telemetry_listen,
        node_account=arguments.node_account or f"system:serviceaccount:{namespace}:timeslice-node",
        kubeconfig=arguments.kubeconfig,
        tls=tls_of_listener(arguments),
    )
    service = KubernetesOrchestrator(config)
    return serving.serve(lambda: [service], lambda: _tell(service.addresses), failed=service.lost)


def _listen(arguments: argparse.Namespace, default: str) -> tuple[str, ...]:
    named = arguments.listen or [part.strip() for part in os.environ.get(ENV_LISTEN, "").split(",") if part.strip()]
    return tuple(named or [default])


def _tell(addresses: tuple[str, ...]) -> None:
    for address in addresses:
        print(f"export TIMESLICE_ORCHESTRATOR={address}", flush=True)


def _namespace() -> str:
    try:
        return _POD_NAMESPACE.read_text(encoding="utf-8").strip()
    except OSError:
        raise ConfigError("--namespace is missing, and this is no pod that has one") from None


def _lease_s(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not _SHORTEST_LEASE_S <= seconds <= 3600:
        raise ConfigError(f"--lease-duration {text!r} is not a number of seconds from {_SHORTEST_LEASE_S:g} to 3600")
    return seconds
