"""How log lines look: `time level logger message`, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"
_ORDINARY = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


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
        return json.dumps(line, ensure_ascii=False, default=str)


def configure(level: str = "INFO", *, as_json: bool = False) -> None:
    """Sends the log to standard error. For programs; a library leaves logging to its host."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
