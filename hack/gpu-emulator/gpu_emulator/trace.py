"""What happened on the silicon, one JSON object a line, for whoever checks afterwards."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

Trace: TypeAlias = Callable[..., None]


def no_trace(_what: str, **_fields: object) -> None:
    """Keeps nothing."""


def trace_to(path: Path) -> Trace:
    """Lines of `t` (seconds, CLOCK_MONOTONIC), `what` and fields. A line is in the file when the call returns."""
    file = path.open("a", buffering=1)

    def write(what: str, **fields: object) -> None:
        file.write(json.dumps({"t": time.monotonic(), "what": what, **fields}) + "\n")

    return write
