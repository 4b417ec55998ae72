"""The groups of this machine's devices, from options or from the orchestrator's groups file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from timeslice_api.errors import ConfigError
from timeslice_api.names import checked_name

from timeslice.cli.options import add_option

ALL = "all"


def add_groups(parser: argparse.ArgumentParser, *, file_text: str) -> None:
    """--group and --groups."""
    parser.add_argument(
        "--group",
        action="append",
        metavar="NAME[=DEVICE,...]",
        help="a group of these devices of this machine, or of all; may be repeated",
    )
    add_option(parser, "--groups", env="TIMESLICE_GROUPS", text=file_text, metavar="FILE", type=Path)


def of_node(arguments: argparse.Namespace, node: str, *, default: str = "") -> dict[str, Sequence[str] | str]:
    """Device ids, or `all`, by group.

    Args:
        arguments: with `group` and `groups`.
        node: this machine's name in the file.
        default: name of a group of all devices, when nothing is said; empty for no group.

    Raises:
        ConfigError: an option or the file is wrong, or both are given.
    """
    if arguments.group and arguments.groups:
        raise ConfigError("--group and --groups contradict each other", hint="give one of them")
    if arguments.groups:
        return _from_file(arguments.groups, node)
    named = dict(_parsed(option) for option in arguments.group or ())
    return named or ({default: ALL} if default else {})


def _parsed(option: str) -> tuple[str, Sequence[str] | str]:
    name, equals, devices = option.partition("=")
    ids = [device.strip() for device in devices.split(",") if device.strip()]
    if equals and not ids:
        raise ConfigError(f"--group {option!r} names no device", hint="write NAME=DEVICE,... or NAME for all")
    return checked_name(name, "--group"), ids or ALL


def _from_file(path: Path, node: str) -> dict[str, Sequence[str] | str]:
    from timeslice_orchestrator.discovery.groups_file import parsed

    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read groups file {path}: {error}") from error
    groups: dict[str, Sequence[str] | str] = {}
    for group in parsed(text, str(path)):
        listed: Mapping[str, tuple[str, ...] | None] = dict(group.devices)
        if node in listed:
            devices = listed[node]
            groups[group.group_id] = ALL if devices is None else devices
    return groups
