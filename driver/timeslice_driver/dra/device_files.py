"""The device files of GPUs, looked at before a claim is called prepared: a fresh machine may not have them yet."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

_NEEDED: Final = "nvidiactl"
_OPTIONAL: Final = ("nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")


def device_files(dev_root: Path, minor: int) -> tuple[Path, ...]:
    """Those that a container with that GPU needs, and those of the optional ones that there are."""
    optional = (dev_root / name for name in _OPTIONAL)
    return (dev_root / f"nvidia{minor}", dev_root / _NEEDED, *(path for path in optional if path.exists()))


def missing(files: Iterable[Path]) -> tuple[Path, ...]:
    """Those that are not there."""
    return tuple(path for path in files if not path.exists())
