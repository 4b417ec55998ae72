"""Which jobs a group has now: those with claims that name its DeviceClass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from timeslice_api.errors import ConfigError
from timeslice_api.kinds.group import TimesliceGroup
from timeslice_api.kinds.names import MAX_JOBS, checked_job_name

from timeslice_orchestrator.kubernetes.claims import Claim
from timeslice_orchestrator.kubernetes.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Jobs:
    """A group's jobs as its status should have them.

    Attributes:
        listed: for status.jobs; nodes publish a capacity for each, so that it can be allocated.
        beyond: jobs that would be the 17th and further ones.
    """

    listed: tuple[str, ...] = ()
    beyond: tuple[str, ...] = ()


def jobs_of(group: TimesliceGroup, occupancy: Occupancy) -> Jobs:
    """The jobs of a group.

    Those that the status has keep their places before newer ones, and these come in the order in which their claims
    were made, so a group that is full does not change its mind.
    """
    asking: dict[str, None] = {}
    for claim in sorted(occupancy.asking(group.name), key=lambda claim: (not claim.uses, claim.created, claim.uid)):
        job = occupancy.job_of(claim)
        if _may_join(group, claim, job):
            asking[job] = None
    return _jobs(group, asking)


def _may_join(group: TimesliceGroup, claim: Claim, job: str) -> bool:
    if claim.uses:  # it is in, whatever was changed since
        return _is_name(job)
    admitted = group.spec.admits_job(job) and group.spec.admits_namespace(claim.namespace)
    return admitted and not group.deleted and _is_name(job)


def _is_name(job: str) -> bool:
    try:
        return bool(checked_job_name(job, "job"))
    except ConfigError:
        return False


def _jobs(group: TimesliceGroup, asking: Mapping[str, None]) -> Jobs:
    before = [job for job in group.status.jobs if job in asking]
    every = list(dict.fromkeys([*before, *asking]))
    room = MAX_JOBS - len([job for job in group.spec.jobs or () if job not in asking])
    return Jobs(tuple(every[:room]), tuple(every[room:]))
