"""What a job tells of itself: one JSON object per line on stdout, with CLOCK_MONOTONIC, which all processes share."""

from __future__ import annotations

import json
import sys
import time
from typing import Any


def tell(event: str, **details: Any) -> None:
    """Writes one event, now."""
    sys.stdout.write(json.dumps({"event": event, "t": time.monotonic(), **details}) + "\n")
    sys.stdout.flush()
