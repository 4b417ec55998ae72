"""Options that several commands share. Each has its twin in the environment."""

from __future__ import annotations

import argparse
import functools
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from timeslice_api import names
from timeslice_api.errors import ConfigError
from timeslice_api.tls import TlsFiles

from timeslice.channel import unix_address

ENV_STATE_DIR = "TIMESLICE_STATE_DIR"
ORCHESTRATOR_SOCKET = "orchestrator.sock"
NODE_SOCKET = "node.sock"


class Subparsers(Protocol):
    """What `add_subparsers` returns."""

    def add_parser(self, name: str, **kwargs: Any) -> argparse.ArgumentParser:
        """A new subcommand."""
        ...


class TakesOptions(Protocol):
    """A parser, or a named group of its options."""

    def add_argument(self, *names: str, **kwargs: Any) -> argparse.Action:
        """A new option."""
        ...


def add_command(commands: Subparsers, name: str, *, summary: str, examples: str) -> argparse.ArgumentParser:
    """A subcommand whose help ends with examples."""
    return commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def add_option(parser: TakesOptions, flag: str, *, env: str, text: str, **kwargs: Any) -> None:
    """An option whose default comes from the environment."""
    default = kwargs.pop("default", None)
    if "choices" in kwargs:
        kwargs["type"] = _among(kwargs["choices"], env)  # argparse holds only what is typed to the choices
    parser.add_argument(flag, default=os.environ.get(env) or default, help=f"{text} [env {env}]", **kwargs)


def _among(choices: Sequence[str], env: str) -> Callable[[str], str]:
    def checked(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(f"{value!r} (or {env}) is not one of {', '.join(choices)}")
        return value

    return checked


def add_orchestrator(parser: argparse.ArgumentParser) -> None:
    """--orchestrator and the certificate files for the way there, for commands that ask it."""
    text = "host:port, unix:///path, or ip:port,ip:port of several; default: the socket in the state directory"
    add_option(parser, "--orchestrator", env=names.ENV_ORCHESTRATOR, text=text, metavar="ADDRESS")
    text = "with the token that says who asks; a socket needs none"
    add_option(parser, "--token-file", env=names.ENV_TOKEN_FILE, text=text, metavar="FILE")
    group = parser.add_argument_group("TLS, to an orchestrator on another machine; files in PEM")
    text = "authorities that its certificate must be of; default: those that gRPC trusts"
    add_option(group, "--tls-ca", env=names.ENV_TLS_CA, text=text, default="", metavar="FILE")
    text = "own certificate, where the orchestrator asks for one"
    add_option(group, "--tls-cert", env=names.ENV_TLS_CERT, text=text, default="", metavar="FILE")
    add_option(group, "--tls-key", env=names.ENV_TLS_KEY, text="its key", default="", metavar="FILE")


def tls_of_dialler(arguments: argparse.Namespace) -> TlsFiles:
    """The files of a command that asks the orchestrator."""
    return TlsFiles(arguments.tls_ca, arguments.tls_cert, arguments.tls_key)


def add_tls_of_listener(parser: argparse.ArgumentParser) -> None:
    """--tls-cert, --tls-key and --tls-client-ca, for commands that run an orchestrator."""
    about = "needed to listen where other machines reach it; files in PEM, read again when they change"
    group = parser.add_argument_group("TLS", about)
    text = "certificate, with the chain to its authority"
    add_option(group, "--tls-cert", env=names.ENV_TLS_CERT, text=text, default="", metavar="FILE")
    add_option(group, "--tls-key", env=names.ENV_TLS_KEY, text="its key", default="", metavar="FILE")
    text = "authorities that clients' and nodes' certificates must be of; default: they need none"
    add_option(group, "--tls-client-ca", env="TIMESLICE_TLS_CLIENT_CA", text=text, default="", metavar="FILE")


def tls_of_listener(arguments: argparse.Namespace) -> TlsFiles:
    """The files of an orchestrator."""
    return TlsFiles(arguments.tls_client_ca, arguments.tls_cert, arguments.tls_key)


def name_of(what: str) -> Callable[[str], str]:
    """The type of an argument that names a job, a group or a node: what cannot be one is refused before it is sent."""
    return functools.partial(names.checked_name, field=what)


def add_state_dir(parser: argparse.ArgumentParser) -> None:
    """--state-dir, for commands that run a part of the platform."""
    text = f"state and sockets; default {default_state_dir()}"
    add_option(parser, "--state-dir", env=ENV_STATE_DIR, text=text, metavar="DIR", type=Path)


def add_groups(parser: argparse.ArgumentParser) -> None:
    """--groups, for commands that run an orchestrator."""
    text = "YAML file of groups, their devices and who may join; read again when it changes"
    add_option(parser, "--groups", env="TIMESLICE_GROUPS", text=text, metavar="FILE", type=Path)


def add_tokens(parser: argparse.ArgumentParser) -> None:
    """--tokens, for commands that run an orchestrator."""
    text = (
        "YAML file of digests of tokens and what their owners may (see `timeslice token`); read again when it changes"
    )
    add_option(parser, "--tokens", env="TIMESLICE_TOKENS", text=text, metavar="FILE", type=Path)


def add_logging(parser: argparse.ArgumentParser) -> None:
    """--log-level and --log-json, for commands that run a part of the platform."""
    levels = ["DEBUG", "INFO", "WARNING", "ERROR"]
    add_option(parser, "--log-level", env="TIMESLICE_LOG_LEVEL", text="default INFO", default="INFO", choices=levels)
    parser.add_argument("--log-json", action="store_true", help="one JSON object a line")


def default_state_dir() -> Path:
    """The same from every folder, so that commands find a running platform: the XDG state directory."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(os.environ.get(ENV_STATE_DIR) or Path(base) / "timeslice")


def state_dir(arguments: argparse.Namespace) -> Path:
    """The chosen state directory, absolute."""
    return Path(arguments.state_dir or default_state_dir()).absolute()


def made(directory: Path) -> Path:
    """The directory, made where it is missing, for its owner alone.

    Raises:
        ConfigError: it cannot be made, or not be written.
    """
    hint = f"give another one: --state-dir, or {ENV_STATE_DIR}"
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the state directory {directory}: {error.strerror}", hint=hint) from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigError(f"cannot write to the state directory {directory}", hint=hint)
    return directory


def orchestrator_address(arguments: argparse.Namespace) -> str:
    """The option, the environment, or the socket in the default state directory.

    Raises:
        ConfigError: there is none of them.
    """
    if arguments.orchestrator:
        return str(arguments.orchestrator)
    socket = default_state_dir() / ORCHESTRATOR_SOCKET
    if os.path.exists(socket):
        return unix_address(str(socket))
    hint = f"set {names.ENV_ORCHESTRATOR} or --orchestrator, or start one with `timeslice up`"
    raise ConfigError(f"no orchestrator is named, and none listens at {socket}", hint=hint)


def node_socket(arguments: argparse.Namespace) -> str:
    """The option, the environment, or the socket in the default state directory; empty when there is none."""
    if arguments.node_socket:
        return str(arguments.node_socket)
    socket = default_state_dir() / NODE_SOCKET
    return str(socket) if os.path.exists(socket) else ""
