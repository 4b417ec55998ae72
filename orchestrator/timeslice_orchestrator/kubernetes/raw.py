"""Reading raw objects of the API server, of which any field may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from timeslice_api.errors import ConfigError
from timeslice_api.kinds.names import DRIVER
from timeslice_api.kinds.quantity import bytes_of

Raw: TypeAlias = Mapping[str, Any]


def at(raw: Raw, *path: str) -> Raw:
    """The object under the path; empty where one is missing."""
    for step in path:
        raw = raw.get(step) or {}
    return raw


def items(raw: Raw, *path: str) -> Sequence[Raw]:
    """The list under the path; empty where it is missing."""
    *above, last = path
    return at(raw, *above).get(last) or ()


def whole(quantity: Any) -> int:
    """A quantity as a whole number; 0 for what is none, which the API server does not let in."""
    try:
        return bytes_of(quantity, "quantity")
    except ConfigError:
        return 0


def ours(entries: Sequence[Raw]) -> list[Raw]:
    """Of configurations: the parameters of those that are for our driver."""
    opaque = (at(entry, "opaque") for entry in entries)
    return [at(one, "parameters") for one in opaque if one.get("driver") == DRIVER]
