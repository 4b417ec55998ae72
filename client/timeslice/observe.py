"""Mode observe: what a job's phases look like, for choosing which jobs to put together. Locks nothing."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from timeslice.holding import Holding

log = logging.getLogger("timeslice")


class PhaseRecord:
    """Appends one JSON object per phase to a file, in one write each, so that many processes may share it.

    Keys: job_id, group_ids, pid, ended_unix_s (wall clock), held_s (length of the phase), idle_s (since the end of this
    process's phase before in the same groups; null for the first one).
    """

    def __init__(self, job_id: str, path: str) -> None:
        self._job_id, self._path = job_id, path
        self._lock = threading.Lock()
        self._ended: dict[tuple[str, ...], float] = {}
        self._told = False

    def write(self, holding: Holding) -> None:
        """Records a holding that ends now. A file that cannot be written is told once; watching never stops a job."""
        now = time.monotonic()
        groups = holding.grant.group_ids
        with self._lock:
            before = self._ended.get(groups)
            self._ended[groups] = now
        line = json.dumps(
            {
                "job_id": self._job_id,
                "group_ids": list(groups),
                "pid": os.getpid(),
                "ended_unix_s": round(time.time(), 3),
                "held_s": round(now - holding.began, 6),
                "idle_s": None if before is None else round(holding.began - before, 6),
            }
        )
        try:
            with open(self._path, "ab", buffering=0) as file:  # noqa: PTH123
                file.write(line.encode() + b"\n")
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("phases are not recorded: cannot write %s: %s", self._path, error.strerror)
