"""Conducts a run: waits until its jobs stand at the start line, lets them go together, and hears them out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from queue import Empty

from comparison.jobs import Ears, JobProcess, Told
from comparison.measures import JobRecord, RunRecord
from comparison.plan import Run

EXIT_OUT_OF_MEMORY = 3  # of a training job
PLATFORM_LOST = "platform_lost"  # an event that ends every run


class RunTimeoutError(Exception):
    """A run did not end within its time limit."""


class PlatformLostError(Exception):
    """The orchestrator does not answer any more."""


class Conductor:
    """Hears all jobs. Events of later runs that come early (`ready`) are remembered."""

    def __init__(self, ears: Ears, on_event: Callable[[Told], None]) -> None:
        self._ears = ears
        self._on_event = on_event
        self._ready: set[tuple[str, str]] = set()

    def conduct(self, jobs: Sequence[JobProcess], limit_s: float) -> RunRecord:
        """Runs the jobs to their ends.

        Raises:
            JobError: one ended otherwise than done; without taking turns it may also find the memory taken.
            PlatformLostError: the orchestrator has gone.
            RunTimeoutError: not all ended within `limit_s` seconds.
        """
        until = time.monotonic() + limit_s
        known = {(job.run.name, job.spec.name): job for job in jobs}
        while not known.keys() <= self._ready:
            self._hear(known, until)
        records = {job.spec.name: JobRecord(job.spec.name, job.spec.task) for job in jobs}
        started = time.monotonic()
        for job in jobs:
            job.go()
        running = set(known)
        while running:
            told = self._hear(known, until)
            if told.event["event"] == "exit":
                running.discard((told.run, told.job))
            elif (told.run, told.job) in known:
                records[told.job].events.append(told.event)
        return RunRecord(started, records)

    def _hear(self, jobs: dict[tuple[str, str], JobProcess], until: float) -> Told:
        try:
            told = self._ears.get(timeout=max(0.0, until - time.monotonic()))
        except Empty:
            raise RunTimeoutError(f"no end of {' and '.join(name for _, name in jobs)} in sight") from None
        if told.event["event"] == "ready":
            self._ready.add((told.run, told.job))
        job = jobs.get((told.run, told.job))
        if told.event["event"] == "exit" and job is not None and told.event["code"] not in _good_ends(job.run):
            raise job.failure(told.event["code"])
        if told.event["event"] == PLATFORM_LOST:
            raise PlatformLostError(told.event["reason"])
        self._on_event(told)
        return told


def _good_ends(run: Run) -> tuple[int, ...]:
    return (0,) if run.takes_turns else (0, EXIT_OUT_OF_MEMORY)
