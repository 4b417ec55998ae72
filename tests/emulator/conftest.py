"""Emulators and puppets for the tests of this folder, all of which run real processes."""

import time
from collections.abc import Iterator

import pytest
from gpu_emulator.emulator import Emulator
from gpu_emulator.fixtures import start_emulator as start_emulator
from gpu_emulator.puppet import Puppet, start_agent, start_job

MIB = 1 << 20


@pytest.fixture(scope="session")
def shared() -> Iterator[Emulator]:
    """One daemon for all tests that leave it as they found it: starting one per test would take most of the time."""
    with Emulator() as started:
        yield started


@pytest.fixture
def emulator(shared: Emulator) -> Iterator[Emulator]:
    """One GPU of 256 MiB without a fault and without a job on it."""
    yield shared
    shared.clear_faults()
    shared.set_device(0, mig=False, persistence=True)
    deadline = time.monotonic() + 5
    while shared.snapshot()["devices"][0]["used"] > 0:  # the jobs of the test have ended, the daemon is told right now
        assert time.monotonic() < deadline
        time.sleep(0.005)


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
