"""Kubernetes quantities (`80Gi`, `1.5G`, `1e9`, 1024) in bytes.

Source of the grammar: https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Decimal

from timeslice_api.errors import ConfigError

_QUANTITY = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?P<unit>[eE][+-]?[0-9]{1,2}|[KMGTPE]i|[numkMGTPE]?)"
)
_DECIMAL = {
    unit: Decimal(10) ** power for unit, power in zip("numkMGTPE", (-9, -6, -3, 3, 6, 9, 12, 15, 18), strict=True)
}
_BINARY = {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", start=1)}
_LONGEST = 40  # characters
_LARGEST = 10**_LONGEST
_SCALE = {"": Decimal(1), **_DECIMAL, **_BINARY}


def bytes_of(quantity: str | int, field: str) -> int:
    """A quantity as a whole number, rounded up.

    Raises:
        ConfigError: it is no quantity; `field` is named.
    """
    text = str(quantity) if type(quantity) is str or (type(quantity) is int and abs(quantity) < _LARGEST) else ""
    found = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        shown = "a huge number" if type(quantity) is int else repr(quantity)[: _LONGEST + 2]
        raise ConfigError(f"{field} {shown} is not a quantity", hint="a number with a unit, such as 80Gi or 500M")
    unit = found["unit"]
    scale = _SCALE[unit] if unit in _SCALE else Decimal(10) ** int(unit[1:])
    return int((Decimal(found["number"]) * scale).to_integral_value(ROUND_CEILING))
