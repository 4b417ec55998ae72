"""How log lines look: `time level logger message`, or one JSON object a line."""

from __future__ import annotations

import json
import logging
import sys

_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and error with the traceback when there is one."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def configure(level: str = "INFO", *, as_json: bool = False) -> None:
    """Sends the log to standard error. For programs; a library leaves logging to its host."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if as_json else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler], force=True)
