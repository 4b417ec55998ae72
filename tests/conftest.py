"""For all tests."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _log_as_it_was() -> Iterator[None]:
    """Commands that run within a test set up the log of the whole process; the next test must not see that."""
    root = logging.getLogger()
    level, handlers = root.level, [*root.handlers]
    yield
    root.setLevel(level)
    for handler in [*root.handlers]:
        if handler not in handlers:
            root.removeHandler(handler)
