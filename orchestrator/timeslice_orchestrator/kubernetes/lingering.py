"""Jobs that stay in a group's status for a short while after their last claim has gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import MAX_JOBS

from timeslice_orchestrator.kubernetes.jobs import Jobs


class Lingering:
    """Remembers since when jobs have no claim.

    Args:
        linger_s: how long they stay.
        clock: seconds, monotonic.
    """

    def __init__(self, linger_s: float, clock: Callable[[], float]) -> None:
        self._linger_s = linger_s
        self._clock = clock
        self._gone_since: dict[str, dict[str, float]] = {}  # by group, then job

    def kept(self, group: TimesliceGroup, jobs: Jobs) -> Jobs:
        """The group's jobs with those that stay, in the order of the status. A job with a claim needs their place: it
        gets it."""
        now, before = self._clock(), self._gone_since.pop(group.name, {})
        gone = [job for job in group.status.jobs if job not in jobs.listed and group.spec.admits_job(job)]
        since = {job: before.get(job, now) for job in gone}
        if since:
            self._gone_since[group.name] = since
        room = 0 if jobs.beyond or group.deleted else MAX_JOBS - len({*jobs.listed, *(group.spec.jobs or ())})
        stay = [job for job in gone if since[job] + self._linger_s > now][: max(room, 0)]
        order = {job: place for place, job in enumerate(group.status.jobs)}
        listed = sorted((*jobs.listed, *stay), key=lambda job: order.get(job, len(order)))
        return replace(jobs, listed=tuple(listed))

    def forget(self, group: str) -> None:
        """The group is gone."""
        self._gone_since.pop(group, None)

    def over_in(self, group: str) -> float | None:
        """After how many seconds the time of one of the group's jobs is over."""
        ends = [since + self._linger_s - self._clock() for since in self._gone_since.get(group, {}).values()]
        return min((end for end in ends if end > 0), default=None)
