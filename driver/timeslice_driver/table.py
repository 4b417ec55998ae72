"""The parts of a node as they are now. Written only by the event loop; whoever wants to know of changes is told."""

from __future__ import annotations

from collections.abc import Callable

from timeslice_driver.parts import Member, Part


class Table:
    """Parts by member. Values are immutable: a change puts a new one."""

    def __init__(self) -> None:
        self._parts: dict[Member, Part] = {}
        self._listeners: list[Callable[[Member], None]] = []

    def get(self, member: Member) -> Part | None:
        """None when the member has no part here."""
        return self._parts.get(member)

    def parts(self) -> tuple[Part, ...]:
        """All, sorted by job and group."""
        return tuple(part for _, part in sorted(self._parts.items()))

    def of_job(self, job_id: str) -> tuple[Part, ...]:
        """The parts of one job, sorted by group."""
        return tuple(part for part in self.parts() if part.member.job_id == job_id)

    def put(self, part: Part) -> None:
        """Adds a part or replaces it."""
        if self._parts.get(part.member) != part:
            self._parts[part.member] = part
            self._tell(part.member)

    def drop(self, member: Member) -> None:
        """Takes a part out. Safe to repeat."""
        if self._parts.pop(member, None):
            self._tell(member)

    def listen(self, listener: Callable[[Member], None]) -> Callable[[], None]:
        """Calls `listener` with the member of each change, from now on; returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _tell(self, member: Member) -> None:
        for listener in tuple(self._listeners):
            listener(member)
