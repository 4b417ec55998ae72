"""How log lines look: `time level logger message`, or one JSON object a line.

A message may hold what strangers have sent, so it is one line whatever is in it: nobody writes a line of the audit log
into the name of a job.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

from timeslice_api.names import printable

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class TextFormatter(logging.Formatter):
    """One line, in which what cannot be printed is told by its number, as in Python; below it the traceback when there
    is one, indented."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - a method of logging.Formatter
        """The line, without its end."""
        return printable(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - a method of logging.Formatter
        """The traceback, in which an error's own words may have any lines."""
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, error with the traceback when there is one, and what it is
    about, as far as whoever wrote it knew (`extra`): request_id, lease_id, job_id, group_id, claim_uid, node, fault."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= {key: value for key, value in vars(record).items() if key not in _ORDINARY and key not in line}
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: str = "INFO", *, as_json: bool = False) -> None:
    """Sends the log to standard error. For programs; a library leaves logging to its host."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
