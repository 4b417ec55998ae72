"""Keeps files that cannot be read: nothing is lost, and whoever wrote them can start anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def move_aside(path: Path, *, suffixes: Sequence[str] = ("",)) -> Path:
    """Renames a file to `NAME.corrupt-N`, N the first that is free; returns that path.

    Args:
        suffixes: of files that belong together, each moved if it is there: `("", "-wal")` takes NAME-wal along.

    Raises:
        OSError: the disk fails.
    """
    number = 1
    while (aside := path.with_name(f"{path.name}.corrupt-{number}")).exists():
        number += 1
    for suffix in suffixes:
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.rename(aside.with_name(aside.name + suffix))
    return aside
