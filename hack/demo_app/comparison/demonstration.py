"""The course of the demonstration: each job alone, both together, and both without taking turns."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from timeslice_api.v1alpha1 import orchestrator_pb2

from comparison.claims import Outcome, check
from comparison.conduct import Conductor
from comparison.jobs import Ears, JobProcess, JobSpec
from comparison.measures import RunRecord
from comparison.platform import GROUP, Platform, platform
from comparison.report import Counted, Setting, report
from comparison.screen import Screen
from comparison.watch import GroupWatch, Reading, handoffs

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent
_UNMANAGED_STEPS = 1
_LIMIT_S_PER_STEP, _LIMIT_S = 20.0, 60.0


class Demonstration:
    """One demonstration in a folder of its own."""

    def __init__(self, setting: Setting, folder: Path, screen: Screen) -> None:
        self._setting, self._folder, self._screen = setting, folder, screen
        self._ears: Ears = SimpleQueue()
        self._conductor = Conductor(self._ears, screen.take)

    def run(self) -> dict[str, Any]:
        """Does it all and returns the report.

        Raises:
            PlatformError, EmulatorError: the platform did not start.
            JobError, RunTimeoutError: a run went wrong.
        """
        setting = self._setting
        with ExitStack() as stack:
            self._screen.say("starting the emulated GPU, the platform and the training programs ...")
            place = stack.enter_context(platform(self._folder, memory=setting.gpu_memory, bandwidth=setting.bandwidth))
            watch = GroupWatch(place.address, GROUP, self._group_changed)
            runs = self._start_jobs(stack, place)
            watch.start()
            stack.callback(watch.stop)
            alone = {
                job.name: self._conduct(
                    f"{job.name} alone", runs[f"{job.name} alone"], title=f"{number}/4 {job.name} alone"
                )
                for number, job in enumerate(setting.jobs, 1)
            }
            before = watch.now()
            together = self._conduct("together", runs["together"], title="3/4 both together, taking turns")
            after = watch.now()
            unmanaged = self._conduct("unmanaged", runs["unmanaged"], title="4/4 both at once without taking turns")
            counted = _counted(watch.readings, before, after, first_grant=_first_grant(alone))
        outcome = Outcome(alone, together, unmanaged, counted.handoff_count, counted.bytes_parked)
        return report(outcome, counted, setting, check(outcome))

    def _start_jobs(self, stack: ExitStack, place: Platform) -> dict[str, list[JobProcess]]:
        """All processes of all runs at once: each loads its programs and waits at the start line, taking no device."""
        jobs, steps = self._setting.jobs, self._setting.steps
        runs: dict[str, list[JobProcess]] = {}
        for run, members in {
            **{f"{job.name} alone": (job,) for job in jobs},
            "together": jobs,
            "unmanaged": jobs,
        }.items():
            managed = run != "unmanaged"
            for job in members:
                env = place.job_env(job.name) if managed else place.unmanaged_env()
                process = self._start(run, job, env, steps if managed else _UNMANAGED_STEPS)
                stack.callback(process.stop)
                runs.setdefault(run, []).append(process)
        return runs

    def _start(self, run: str, job: JobSpec, env: dict[str, str], steps: int) -> JobProcess:
        log = self._folder / f"{run} {job.name}.log".replace(" ", "-")
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), env.get("PYTHONPATH")]))
        return JobProcess(run, job, steps=steps, env=env, log=log, ears=self._ears)

    def _conduct(self, run: str, jobs: list[JobProcess], *, title: str) -> RunRecord:
        self._screen.begin(run, title, [job.spec for job in jobs])
        limit_s = _LIMIT_S + _LIMIT_S_PER_STEP * self._setting.steps
        record = self._conductor.conduct(jobs, limit_s)
        events = {name: job.events for name, job in record.jobs.items()}
        (self._folder / f"{run.replace(' ', '-')}.json").write_text(
            json.dumps({"started": record.started, "jobs": events})
        )
        return record

    def _group_changed(self, group: orchestrator_pb2.Group) -> None:
        self._screen.board.group = group


def _first_grant(runs: dict[str, RunRecord]) -> float:
    return min(span.start for run in runs.values() for job in run.jobs.values() for span in job.holds)


def _counted(readings: list[Reading], before: Reading, after: Reading, *, first_grant: float) -> Counted:
    during = [before, *(reading for reading in readings if before.at < reading.at < after.at), after]
    start, end = before.group.totals, after.group.totals
    return Counted(
        handoffs=tuple(handoffs(during)),
        handoff_count=after.group.handoffs - before.group.handoffs,
        bytes_parked=end.bytes_parked - start.bytes_parked,
        bytes_restored=end.bytes_restored - start.bytes_restored,
        grants=end.grants - start.grants,
        duty_cycle=_duty_between(before, after, first_grant),
    )


def _duty_between(before: Reading, after: Reading, first_grant: float) -> float:
    """The orchestrator's own duty cycle counts from its first grant on; this is the part between two readings."""
    held = [reading.group.duty_cycle * (reading.at - first_grant) for reading in (before, after)]
    return (held[1] - held[0]) / (after.at - before.at)
