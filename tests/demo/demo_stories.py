"""Made-up runs: what jobs would have told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from comparison.claims import Outcome
from comparison.measures import Event, Handoff, JobRecord, RunRecord
from comparison.plan import JobSpec
from comparison.report import Counted, Setting

JOBS = (JobSpec("job-a", "gcd", 23), JobSpec("job-b", "count_bits", 5))
SETTING = Setting(JOBS, steps=4, gpu_memory=256 << 20, bandwidth=2_500_000_000)
RISING = (0.1, 0.2, 0.3, 0.4)


@dataclass(frozen=True)
class Story:
    """How one job fared: a step takes `on_s` on the device after `waits_s` and `off_s` off it."""

    spec: JobSpec
    curve: Sequence[float] = RISING
    on_s: float = 2.0
    off_s: float = 3.0
    waits_s: float = 0.0
    sha: str = "ab" * 32

    def record(self) -> JobRecord:
        t, events = 100.0, list[Event]()
        for step, mean in enumerate([*self.curve, None]):
            events += [
                {"event": "waiting", "t": t, "step": step},
                {"event": "holding", "t": t + self.waits_s, "step": step},
                {"event": "held", "t": (t := t + self.waits_s + self.on_s), "step": step},
            ]
            if mean is not None:
                events.append({"event": "reward", "t": (t := t + self.off_s), "step": step, "mean": mean})
        done = {"event": "done", "t": t, "weights_sha256": self.sha, "device_sha256": self.sha}
        return JobRecord(self.spec.name, self.spec.task, [*events, done])


def run_of(*stories: Story) -> RunRecord:
    return RunRecord(100.0, {story.spec.name: story.record() for story in stories})


def refused_run(*refused: str) -> RunRecord:
    jobs = {
        job.name: JobRecord(
            job.name, job.task, [{"event": "out_of_memory", "t": 101.0, "error": "CUDA_ERROR_OUT_OF_MEMORY"}]
        )
        if job.name in refused
        else Story(job).record()
        for job in JOBS
    }
    return RunRecord(100.0, jobs)


@dataclass(frozen=True)
class Stories:
    """A whole demonstration in which every claim holds, unless told otherwise."""

    alone: Mapping[str, Story] = field(default_factory=lambda: {job.name: Story(job) for job in JOBS})
    together: Mapping[str, Story] = field(default_factory=lambda: {job.name: Story(job, waits_s=1.0) for job in JOBS})
    unmanaged: RunRecord = field(default_factory=lambda: refused_run("job-b"))
    handoffs: int = 7
    bytes_parked: int = 7 << 20

    def outcome(self) -> Outcome:
        alone = {name: run_of(story) for name, story in self.alone.items()}
        return Outcome(alone, run_of(*self.together.values()), self.unmanaged, self.handoffs, self.bytes_parked)

    def counted(self) -> Counted:
        one = Handoff(0.01, 0.09, 0.07, 0.01, 0.2, 1 << 20, 1 << 20)
        return Counted((one,) * self.handoffs, self.handoffs, self.bytes_parked, self.bytes_parked, 10, 0.7)

    def sharing(self, **changes: object) -> Stories:
        """The same with other stories of the jobs together."""
        return replace(self, together={name: replace(s, **changes) for name, s in self.together.items()})  # type: ignore[arg-type]
