"""What is run: jobs, and the runs in which they take part."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class JobSpec:
    """Which job: its name, its task and the seed of the task."""

    name: str
    task: str
    seed: int


@dataclass(frozen=True)
class Run:
    """Jobs that start together: what the run is called, how many steps each job makes, and whether they take turns."""

    name: str = ""
    title: str = ""
    jobs: tuple[JobSpec, ...] = ()
    steps: int = 0
    takes_turns: bool = True


@dataclass(frozen=True)
class Plan:
    """The runs of a demonstration, in their order: each job alone, all together, and all without taking turns."""

    jobs: tuple[JobSpec, ...]
    steps: int

    @property
    def alone(self) -> dict[str, Run]:
        """By job. The same platform and the same calls, only nobody to share with."""
        return {
            job.name: Run(f"{job.name} alone", f"{number}/4 {job.name} alone", (job,), self.steps)
            for number, job in enumerate(self.jobs, 1)
        }

    @property
    def together(self) -> Run:
        """Taking turns."""
        return Run("together", "3/4 both together, taking turns", self.jobs, self.steps)

    @property
    def unmanaged(self) -> Run:
        """All at once without the client; one step is enough to see who gets memory."""
        return Run("unmanaged", "4/4 both at once without taking turns", self.jobs, 1, takes_turns=False)

    @property
    def runs(self) -> tuple[Run, ...]:
        """All of them."""
        return (*self.alone.values(), self.together, self.unmanaged)
