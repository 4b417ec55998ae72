"""How GPUs, nodes, amounts and faults are put for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from timeslice_orchestrator.core.model import Fault

_MAX_NODES = 4  # more are counted
_WORD = re.compile("[A-Za-z][A-Za-z0-9]{0,63}")
_UNITS = (("Ti", 1024**4), ("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024))


def listed(words: Sequence[str], most: int = 0) -> str:
    """`a`, `a and b`, `a, b and c`; with `most`, what is beyond is counted: `a, b and 3 more`."""
    if most and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def gpus_of_nodes(gpus: Iterable[tuple[str, str]]) -> str:
    """GPUs, as (node, gpu), by node: `gpu-0 and gpu-1 of node-a, gpu-0 of node-b`; of many nodes only how many."""
    by_node: dict[str, list[str]] = {}
    for node, gpu in gpus:
        by_node.setdefault(node, []).append(gpu)
    if len(by_node) > _MAX_NODES:
        return f"{sum(map(len, by_node.values()))} GPUs of {len(by_node)} nodes"
    return ", ".join(f"{listed(sorted(mine, key=_number))} of {node}" for node, mine in sorted(by_node.items()))


def quantity(amount: int) -> str:
    """Bytes in the largest unit in which they are a whole number: 80Gi."""
    for unit, size in _UNITS:
        if amount and amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)


def said(fault: Fault) -> str:
    """What has happened, and what helps."""
    return f"{fault.message}; {fault.hint}" if fault.hint else fault.message


def word(fault: Fault) -> str:
    """Its reason as the API server takes reasons, whatever the node has sent."""
    return fault.reason if _WORD.fullmatch(fault.reason) else "NodeFault"


def _number(gpu: str) -> tuple[int, str]:
    tail = gpu.rpartition("-")[2]
    return (int(tail) if tail.isdigit() else 0, gpu)
