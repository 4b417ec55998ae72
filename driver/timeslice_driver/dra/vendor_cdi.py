"""NVIDIA's own CDI specs, as `nvidia-ctk cdi generate --device-name-strategy=uuid` writes them, JSON or YAML.

With them a container also gets the driver's libraries and whatever else the installed driver needs; without them it
gets device files only.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import yaml
from timeslice_api.bounded_files import content_of
from timeslice_api.shapes import json_of

log = logging.getLogger(__name__)

KIND: Final = "nvidia.com/gpu"
_LARGEST: Final = 16 << 20  # bytes; those of machines with many GPUs have a few hundred thousand
_Stamp = tuple[int, int, int]


class VendorCdi:
    """The devices of NVIDIA's specs. Its methods block; a file is read again only when it has changed.

    Args:
        folders: CDI folders, the one that wins last.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._read: dict[Path, tuple[_Stamp, tuple[str, ...]]] = {}

    def ids(self) -> dict[str, str]:
        """CDI ids ("nvidia.com/gpu=GPU-...") by device name: a UUID, where the spec was made so.

        A name that two files of one folder have is left out: runtimes refuse it.
        """
        found: dict[str, str] = {}
        for folder in self._folders:
            counts = Counter(name for path in self._files(folder) for name in self._names(path))
            for name in [name for name, count in counts.items() if count > 1]:
                log.warning("CDI device %s=%s is in two files of %s: runtimes refuse it", KIND, name, folder)
                found.pop(name, None)
            found |= {name: f"{KIND}={name}" for name, count in counts.items() if count == 1}
        return found

    @staticmethod
    def _files(folder: Path) -> list[Path]:
        return sorted(path for path in folder.glob("*") if path.suffix in {".json", ".yaml"})

    def _names(self, path: Path) -> tuple[str, ...]:
        try:
            status = path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if path not in self._read or self._read[path][0] != stamp:
                self._read[path] = stamp, _names_in(path)
        except FileNotFoundError:  # claims come and go
            self._read.pop(path, None)
            return ()
        except (OSError, ValueError, yaml.YAMLError) as error:
            log.warning("CDI spec %s cannot be read: %s", path, error)
            return ()
        return self._read[path][1]


def _names_in(path: Path) -> tuple[str, ...]:
    if path.name.startswith("timeslice.dev-"):  # ours, one per claim
        return ()
    content: Any = _load(path)
    if not isinstance(content, dict) or content.get("kind") != KIND:
        return ()
    devices = content.get("devices")
    named = [each for each in devices if isinstance(each, dict)] if isinstance(devices, list) else []
    return tuple(each["name"] for each in named if isinstance(each.get("name"), str))


def _load(path: Path) -> Any:
    text = content_of(path, _LARGEST).decode()
    if path.suffix == ".json":
        return json_of(text)
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # in C it takes milliseconds, in Python a tenth of a second
    try:
        return yaml.load(text, Loader=loader)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
