"""What the node counts about its work, for those who want to know."""

from __future__ import annotations

from timeslice_driver.parts import Step


class Meter:
    """Told of each step and each fault; this one does not listen. `NodeMetrics` does."""

    def step(self, step: Step, seconds: float, moved: int) -> None:
        """Processes took a step together; `moved` bytes went between devices and host memory by it."""

    def fault(self, reason: str) -> None:
        """A command could not do what it was told with a part, for this reason (`Fault.reason`)."""
