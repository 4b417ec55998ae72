"""Pytest fixtures: import the names that a conftest needs."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from gpu_emulator.emulator import Emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    """One GPU of 256 MiB without bandwidth limits."""
    with Emulator() as started:
        yield started


@pytest.fixture
def start_emulator() -> Iterator[Callable[..., Emulator]]:
    """Starts emulators with the options of ``Emulator``; they end with the test."""
    with contextlib.ExitStack() as stack:
        yield lambda **options: stack.enter_context(Emulator(**options))
