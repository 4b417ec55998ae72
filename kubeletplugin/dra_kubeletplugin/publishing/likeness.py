"""Whether a stored slice is what was wanted. Pure.

The API server writes quantities its own way, adds the time to taints, leaves out what is empty, and drops fields that
it does not know or whose feature gate is off, without a word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal, InvalidOperation
from typing import Any

from dra_kubeletplugin.apiserver import Object

_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:([eE][+-]?[0-9]+)|([KMGTPE]i)|([numkMGTPE]))?")
_BINARY = {suffix: Decimal(1024) ** power for power, suffix in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_QUANTITIES = {"capacity": True, "counters": True, "attributes": False}  # whether strings below are quantities


def amount(quantity: object) -> Decimal | None:
    """The number that a quantity stands for (apimachinery, pkg/api/resource); None if it is none."""
    found = _QUANTITY.fullmatch(str(quantity))
    if not found:
        return None
    number, exponent, binary, suffix = found.groups()
    try:
        value = Decimal(number + (exponent or ""))
    except InvalidOperation:
        return None
    if binary:
        return value * _BINARY[binary]
    return value.scaleb(_DECIMAL[suffix]) if suffix else value


def alike(wanted: Object, stored: Object) -> bool:
    """Whether two slice specs mean the same. Taints without a time match any."""
    return bool(_normal(with_times(wanted, stored)) == _normal(stored))


def dropped(wanted: Object, stored: Object) -> tuple[str, ...]:
    """Paths of fields that are wanted and not stored, without positions in lists; each once, sorted."""
    missing = set(_missing(_normal(with_times(wanted, stored)) or {}, _normal(stored) or {}))
    return tuple(sorted(missing))


def with_times(wanted: Object, stored: Object) -> Object:
    """What is wanted, with the times that its taints, as they are stored, have been there since."""
    before = {device.get("name"): device for device in stored.get("devices") or ()}
    devices = [_with_times(device, before.get(device.get("name"), {})) for device in wanted.get("devices") or ()]
    return wanted | {"devices": devices} if devices else wanted


def _with_times(device: Object, before: Object) -> Object:
    if not device.get("taints"):
        return device
    times = {_taint_key(taint): taint.get("timeAdded") for taint in before.get("taints") or ()}
    return device | {"taints": [_timed(taint, times.get(_taint_key(taint))) for taint in device["taints"]]}


def _timed(taint: Object, time: str | None) -> Object:
    return taint | {"timeAdded": time} if time and not taint.get("timeAdded") else taint


def _taint_key(taint: Object) -> tuple[Any, ...]:
    return taint.get("key"), taint.get("value") or "", taint.get("effect")


def _normal(value: Any, *, quantities: bool | None = None, key: str = "") -> Any:
    """Without what is empty, with numbers for quantities and whole seconds for times. An empty value is None."""
    if isinstance(value, dict):
        inner = {
            name: _normal(item, quantities=_QUANTITIES.get(name) if quantities is None else quantities, key=name)
            for name, item in value.items()
        }
        return {name: item for name, item in inner.items() if item is not None} or None
    if isinstance(value, (list, tuple)):
        return [_normal(item, quantities=quantities, key=key) for item in value] or None
    if key == "timeAdded":
        return datetime.fromisoformat(value).replace(microsecond=0)
    if quantities and not isinstance(value, bool):
        number = amount(value)
        return value if number is None else number
    return value


def _missing(wanted: Any, stored: Any, path: str = "") -> Iterator[str]:
    if isinstance(wanted, dict) and isinstance(stored, dict):
        for name, item in wanted.items():
            inner = f"{path}.{name}" if path else name
            if name not in stored:
                yield inner
            else:
                yield from _missing(item, stored[name], inner)
    elif isinstance(wanted, list) and isinstance(stored, list):
        for pair in zip(wanted, _padded(stored, len(wanted)), strict=False):
            yield from _missing(*pair, path)
    elif wanted != stored:
        yield path


def _padded(items: Sequence[Any], length: int) -> list[Any]:
    return [*items, *[None] * (length - len(items))]
