from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest
from comparison.conduct import PLATFORM_LOST, Conductor, PlatformLostError, RunTimeoutError
from comparison.jobs import Ears, JobError, JobProcess, Told
from comparison.measures import Event, RunRecord
from comparison.plan import JobSpec, Plan, Run
from demo_stories import JOBS

PLAN = Plan(JOBS, steps=1)


@dataclass
class ScriptedJob:
    """Tells what it is told to tell, once it may go."""

    run: Run
    spec: JobSpec
    ears: Ears
    code: int = 0
    tells: Sequence[Event] = ()

    def go(self) -> None:
        for event in self.tells:
            self.tell(event)
        self.tell({"event": "exit", "t": 9.0, "code": self.code})

    def tell(self, event: Event) -> None:
        self.ears.put(Told(self.run.name, self.spec.name, {"t": 1.0, **event}))

    def failure(self, code: int) -> JobError:
        return JobError(f"{self.spec.name} ended with status {code}")


def conduct(run: Run, *codes: int, ears: Ears | None = None, ready: bool = True, limit_s: float = 5.0) -> RunRecord:
    ears = ears or SimpleQueue()
    jobs = [
        ScriptedJob(run, job, ears, code, [{"event": "holding"}]) for job, code in zip(run.jobs, codes, strict=True)
    ]
    for job in jobs if ready else ():
        job.tell({"event": "ready"})
    return Conductor(ears, lambda told: None).conduct(cast("list[JobProcess]", jobs), limit_s)


def test_a_run_is_over_when_all_its_jobs_have_ended() -> None:
    record = conduct(PLAN.together, 0, 0)
    assert {name: [event["event"] for event in job.events] for name, job in record.jobs.items()} == {
        "job-a": ["holding"],
        "job-b": ["holding"],
    }


def test_events_of_a_run_that_is_yet_to_come_are_no_part_of_this_one() -> None:
    ears: Ears = SimpleQueue()
    ears.put(Told("together", "job-b", {"event": "ready", "t": 0.0}))
    assert list(conduct(PLAN.alone["job-a"], 0, ears=ears).jobs) == ["job-a"]


def test_a_job_that_takes_turns_and_finds_no_memory_has_failed() -> None:
    with pytest.raises(JobError, match="job-b ended with status 3"):
        conduct(PLAN.together, 0, 3)
    assert conduct(PLAN.unmanaged, 0, 3).jobs.keys() == {"job-a", "job-b"}


@pytest.mark.parametrize("run", [PLAN.together, PLAN.unmanaged])
def test_a_job_that_crashes_ends_the_demonstration(run: Run) -> None:
    with pytest.raises(JobError, match="job-a ended with status 1"):
        conduct(run, 1, 0)


def test_a_lost_platform_ends_the_demonstration_at_once() -> None:
    ears: Ears = SimpleQueue()
    ears.put(Told("", "platform", {"event": PLATFORM_LOST, "t": 0.0, "reason": "UNAVAILABLE"}))
    with pytest.raises(PlatformLostError, match="UNAVAILABLE"):
        conduct(PLAN.together, 0, 0, ears=ears, ready=False)


def test_a_run_that_does_not_end_is_given_up() -> None:
    with pytest.raises(RunTimeoutError, match="no end of job-a and job-b"):
        conduct(PLAN.together, 0, 0, ready=False, limit_s=0.05)


@pytest.mark.processes
def test_a_job_that_ended_before_the_start_is_known_by_its_exit(tmp_path: Path) -> None:
    ears: Ears = SimpleQueue()
    job = JobProcess(PLAN.together, JOBS[0], core=0, env={"PYTHONPATH": ""}, log=tmp_path / "log", ears=ears)
    told = ears.get(timeout=8)
    job.go()
    job.stop()
    assert told.event["event"] == "exit"
    assert "No module named grpo" in str(job.failure(told.event["code"]))
