"""Waits that grow from failure to failure."""

from __future__ import annotations

import random


class Backoff:
    """Waits in seconds that double up to a limit, each up to a third shorter by chance so that many do not meet."""

    def __init__(self, *, shortest_s: float, longest_s: float) -> None:
        self._shortest_s = shortest_s
        self._longest_s = longest_s
        self._failures = 0

    def next_s(self) -> float:
        """How long to wait now."""
        wait_s = min(self._longest_s, self._shortest_s * 2.0 ** min(self._failures, 30))
        self._failures += 1
        return wait_s * random.uniform(2 / 3, 1)

    def reset(self) -> None:
        """It worked: the next wait is the shortest again."""
        self._failures = 0
