"""For all tests."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterator

import patience
import pytest


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c_is_heard() -> Iterator[None]:
    """What a shell without job control starts in the background is deaf to Ctrl-C, and all that it starts itself."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True, scope="session")
def _no_public_authorities() -> Iterator[None]:
    """No client of ours speaks with a public server here; to read the machine's authorities takes each 50 ms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", os.environ.get("SSL_CERT_FILE", os.devnull))
        yield


@pytest.fixture(autouse=True)
def _processes_take_their_time(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.node.get_closest_marker("processes"):
        monkeypatch.setattr(patience, "WITHIN_S", patience.WITHIN_S_OF_PROCESSES)


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
