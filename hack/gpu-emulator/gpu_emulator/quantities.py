"""Sizes and rates as people write them: 256MiB, 3GB/s, none."""

import re

_UNITS = {
    "": 1, "b": 1,
    "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12,
    "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40,
    "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40,
}  # fmt: skip


def parse_bytes(text: str) -> int:
    """Bytes of a size such as ``256MiB`` or ``1.5GB``; ValueError when it is none."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError(f"not a size: {text!r} (write for example 256MiB)")
    return int(float(match[1]) * _UNITS[match[2].lower()])


def parse_rate(text: str) -> int:
    """Bytes per second of a rate such as ``3GB/s``; 0 for ``none``, which means without a limit."""
    if text.strip().lower() in ("none", "unlimited", "0"):
        return 0
    return parse_bytes(text.strip().removesuffix("/s"))
