"""Emulators and puppets for the tests of this folder, all of which run real processes."""

from collections.abc import Iterator

import pytest
from gpu_emulator.emulator import Emulator
from gpu_emulator.fixtures import emulator as emulator
from gpu_emulator.fixtures import start_emulator as start_emulator
from gpu_emulator.puppet import Puppet, start_agent, start_job

MIB = 1 << 20


@pytest.fixture
def job(emulator: Emulator) -> Iterator[Puppet]:
    """A process with 3 MiB of device memory."""
    with start_job(emulator, 3 * MIB) as started:
        yield started


@pytest.fixture
def agent(emulator: Emulator) -> Iterator[Puppet]:
    """A process that acts on others."""
    with start_agent(emulator) as started:
        yield started
