"""The shortest JSON merge patch from one object to another. https://www.rfc-editor.org/rfc/rfc7386"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """What makes `new` of `old`; empty when they are the same. No value in either may be None."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if before is value or before == value:
            continue
        if isinstance(before, Mapping) and isinstance(value, Mapping):
            patch[key] = merge_patch(before, value)
        else:
            patch[key] = value
    return patch
