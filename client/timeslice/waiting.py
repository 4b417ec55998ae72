"""What a waiting caller gets to see."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass

log = logging.getLogger("timeslice")

FIRST_LINE_S = 5.0
BETWEEN_LINES_S = 8.0


@dataclass(frozen=True)
class WaitStatus:
    """Why an acquire is not granted yet. `position` is 0 while the orchestrator has not been heard."""

    group_ids: tuple[str, ...]
    waited_s: float
    position: int = 0
    holder_job_id: str = ""
    held_s: float = 0.0
    reason: str = ""

    def __str__(self) -> str:
        return f"waiting {self.waited_s:.0f} s for {' and '.join(self.group_ids)}: {self.why or 'no answer yet'}"

    @property
    def why(self) -> str:
        """Who holds, since when, the position, and what else is known; empty when nothing is."""
        facts = []
        if self.holder_job_id:
            facts.append(f"held by {self.holder_job_id} for {self.held_s:.0f} s")
        if self.position:
            facts.append(f"position {self.position}")
        text = ", ".join(facts)
        # "held by job-b" is said already
        if self.reason and not (self.holder_job_id and self.reason == f"held by {self.holder_job_id}"):
            text = f"{text} ({self.reason})" if text else self.reason
        return text


class ProgressLine:
    """Says every few seconds that, and why, an acquire still waits: in the log, or else on a terminal."""

    def __init__(self) -> None:
        self._next_s = FIRST_LINE_S

    def show(self, status: WaitStatus) -> None:
        """Writes a line when one is due."""
        if status.waited_s < self._next_s:
            return
        self._next_s = status.waited_s + BETWEEN_LINES_S
        if log.isEnabledFor(logging.INFO):
            log.info("%s", status)
        elif sys.stderr is not None and sys.stderr.isatty():
            print(f"timeslice: {status}", file=sys.stderr, flush=True)
