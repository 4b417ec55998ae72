"""Names of the devices in ResourceSlices: `gpu-<number>-<group>` for a lane, `gpu-<number>-slot-<k>` for a slot. Pure.

The number is the GPU's own for as long as the node knows it (see gpus.py), so a name in an old allocation always means
the GPU that the scheduler meant.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_NAME = re.compile(
    r"gpu-(?P<number>[0-9]{1,4})-(?:slot-(?P<slot>[0-9]{1,3})|(?P<group>[a-z0-9](?:[-a-z0-9]*[a-z0-9])?))"
)


@dataclass(frozen=True)
class DeviceName:
    """A device's name in its parts: exactly one of `group` (a lane) and `slot` is set."""

    number: int
    group: str | None = None
    slot: int | None = None

    def __str__(self) -> str:
        return f"{counter_set(self.number)}-{self.group if self.slot is None else f'slot-{self.slot}'}"


def counter_set(number: int) -> str:
    """The name of a GPU's counter set, which is also how people are told of that GPU."""
    return f"gpu-{number}"


def parse(name: str) -> DeviceName | None:
    """The parts of a name; None when it is not one of ours."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    slot = found["slot"]
    return DeviceName(int(found["number"]), found["group"], None if slot is None else int(slot))
