"""The groups that this machine declares. A groups file is the orchestrator's alone, and wins over them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from timeslice_api.errors import ConfigError
from timeslice_api.names import DEFAULT_GROUP, checked_name

ALL = "all"


def add_group(parser: argparse.ArgumentParser) -> None:
    """--group."""
    parser.add_argument(
        "--group",
        action="append",
        metavar="NAME[=DEVICE,...]",
        help="a group of these devices of this machine, or of all; may be repeated; a groups file of the orchestrator "
        f"wins over it; default {DEFAULT_GROUP!r}, of all",
    )


def declared(arguments: argparse.Namespace) -> dict[str, Sequence[str] | str]:
    """Device ids, or `all`, by group.

    Raises:
        ConfigError: an option is wrong.
    """
    return dict(_parsed(option) for option in arguments.group or (DEFAULT_GROUP,))


def _parsed(option: str) -> tuple[str, Sequence[str] | str]:
    name, equals, devices = option.partition("=")
    ids = [device.strip() for device in devices.split(",") if device.strip()]
    if equals and not ids:
        raise ConfigError(f"--group {option!r} names no device", hint="write NAME=DEVICE,... or NAME for all")
    return checked_name(name, "--group"), ids or ALL
