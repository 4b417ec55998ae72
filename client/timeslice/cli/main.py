"""Entry point of the command `timeslice`: one module per subcommand, imported only as far as it is needed."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence

from timeslice_api.errors import InvalidRequest, TimesliceError, Unavailable
from timeslice_api.unread import ends_when_unread

from timeslice.cli import doctor, drain, node, orchestrator, release, reset, resume, run, status, token, up

EXIT_FAILED = 1  # refused, or failed
EXIT_USAGE = 2  # wrong options or configuration; as argparse has it
EXIT_UNREACHABLE = 3  # no orchestrator or node answers
EXIT_INTERRUPTED = 130

# by the module that is missing
EXTRAS = {"pynvml": "node", "yaml": "orchestrator", "kubernetes": "orchestrator", "prometheus_client": "orchestrator"}
COMMANDS = (up, run, status, release, drain, resume, reset, doctor, orchestrator, node, token)

_EXIT_CODES = """\
exit status: 0 done, 1 refused or failed, 2 wrong options or configuration, 3 nobody answers;
`timeslice run` ends with the status of its command
"""


def parser_of_all() -> argparse.ArgumentParser:
    """The options of every command, with their defaults from the environment."""
    parser = argparse.ArgumentParser(
        prog="timeslice",
        description="Independent RL jobs share GPUs by taking turns at phase boundaries.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


@ends_when_unread
def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    _end_on_sigterm()
    _print_everything()
    try:
        arguments = parser_of_all().parse_args(argv)
        return int(arguments.run(arguments))
    except TimesliceError as error:
        print(f"error: {error}", file=sys.stderr)
        return _exit_status(error)
    except ModuleNotFoundError as error:
        print(f"error: {_missing(error)}", file=sys.stderr)
        return EXIT_USAGE
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def _end_on_sigterm() -> None:
    """The first process of a container gets no signal that it has no handler for. Without this one, a pod that is
    deleted before its service has a handler of its own would be waited for in vain, and killed."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


def _print_everything() -> None:
    """What the terminal has no sign for, or is no text, as the name of a file may be, is shown as its number."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # None when it is closed
        sys.stdout.reconfigure(errors="backslashreplace")


def _missing(error: ModuleNotFoundError) -> str:
    """What to install; the bare install is the client alone. An unknown module is a fault of ours, and is raised."""
    extra = EXTRAS.get((error.name or "").partition(".")[0])
    if extra is None:
        raise error
    return f'this command needs {error.name}, which is not installed (pip install "timeslice[{extra}]")'


def _exit_status(error: TimesliceError) -> int:
    if isinstance(error, InvalidRequest):
        return EXIT_USAGE
    return EXIT_UNREACHABLE if isinstance(error, Unavailable) else EXIT_FAILED
