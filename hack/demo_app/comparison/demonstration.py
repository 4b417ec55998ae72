"""The course of the demonstration: each job alone, both together, and both without taking turns."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from timeslice_api.v1alpha1 import orchestrator_pb2

from comparison.claims import Outcome, check
from comparison.conduct import PLATFORM_LOST, Conductor
from comparison.jobs import Ears, JobProcess, Told
from comparison.measures import RunRecord
from comparison.plan import JobSpec, Plan, Run
from comparison.platform import GROUP, Platform, platform
from comparison.report import Counted, Setting, report
from comparison.screen import Screen
from comparison.watch import GroupWatch, Reading, handoffs

_PACKAGE_ROOT = Path(__file__).resolve().parent.parent
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
            JobError, PlatformLostError, RunTimeoutError: a run went wrong.
        """
        setting, started_at = self._setting, time.monotonic()
        plan = Plan(setting.jobs, setting.steps)
        with ExitStack() as stack:
            self._screen.say("starting the emulated GPU, the platform and the training programs ...")
            place = stack.enter_context(platform(self._folder, memory=setting.gpu_memory, bandwidth=setting.bandwidth))
            watch = GroupWatch(place.address, GROUP, self._group_changed, self._platform_lost)
            started = self._start_jobs(stack, place, plan)
            watch.start()
            stack.callback(watch.stop)
            alone = {name: self._conduct(run, started[run]) for name, run in plan.alone.items()}
            before = watch.now()
            together = self._conduct(plan.together, started[plan.together])
            after = watch.now()
            unmanaged = self._conduct(plan.unmanaged, started[plan.unmanaged])
            counted = _counted(watch.readings, before, after, first_grant=_first_grant(alone))
        outcome = Outcome(alone, together, unmanaged, counted.handoff_count, counted.bytes_parked)
        whole_s = time.monotonic() - started_at
        return report(outcome, counted, setting, claims=check(outcome), whole_s=whole_s)

    def _start_jobs(self, stack: ExitStack, place: Platform, plan: Plan) -> dict[Run, list[JobProcess]]:
        """All processes of all runs at once: each loads its programs and waits at the start line, taking no device."""
        started: dict[Run, list[JobProcess]] = {}
        for run in plan.runs:
            started[run] = [self._start(run, job, place) for job in run.jobs]
            for process in started[run]:
                stack.callback(process.stop)
        return started

    def _start(self, run: Run, job: JobSpec, place: Platform) -> JobProcess:
        env = place.job_env(job.name) if run.takes_turns else place.unmanaged_env()
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), env.get("PYTHONPATH")]))
        return JobProcess(
            run, job, core=self._core(job), env=env, log=self._file(run, f"{job.name}.log"), ears=self._ears
        )

    def _core(self, job: JobSpec) -> int:
        """A core for each job, alone and together, as pods with exclusive cores have; as far as there are enough."""
        cores = sorted(os.sched_getaffinity(0))
        return cores[self._setting.jobs.index(job) % len(cores)]

    def _conduct(self, run: Run, jobs: list[JobProcess]) -> RunRecord:
        self._screen.begin(run)
        record = self._conductor.conduct(jobs, _LIMIT_S + _LIMIT_S_PER_STEP * run.steps)
        events = {name: job.events for name, job in record.jobs.items()}
        self._file(run, "events.json").write_text(json.dumps({"started": record.started, "jobs": events}))
        return record

    def _file(self, run: Run, name: str) -> Path:
        return self._folder / f"{run.name.replace(' ', '-')}-{name}"

    def _group_changed(self, group: orchestrator_pb2.Group) -> None:
        self._screen.board.group = group

    def _platform_lost(self, reason: str) -> None:
        self._ears.put(Told("", "platform", {"event": PLATFORM_LOST, "t": time.monotonic(), "reason": reason}))


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
