"""Why an operation on a process or a part did not reach its goal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """A named reason with a sentence for people.

    Attributes:
        reason: one stable CamelCase word for programs (`LockTimeout`, `HostMemory`, ...).
        message: one sentence with the numbers.
        hint: what to do about it; may be empty.
        retryable: the same operation may succeed later without anybody's help.
    """

    reason: str
    message: str
    hint: str = ""
    retryable: bool = False


def amount(size: int) -> str:
    """A size in bytes as people read it, never rounded to zero."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if abs(size) >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} B"
