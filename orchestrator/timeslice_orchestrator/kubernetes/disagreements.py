"""Where a label says something else than what was allocated. The allocation counts; people are told of the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from timeslice_api.kinds.names import LABEL_GROUP, LABEL_JOB, capacity_key

from timeslice_orchestrator.kubernetes.claims import Claim
from timeslice_orchestrator.kubernetes.occupancy import Occupancy
from timeslice_orchestrator.kubernetes.pods import Pod
from timeslice_orchestrator.kubernetes.wording import listed


@dataclass(frozen=True, slots=True)
class Disagreement:
    """One label of a claim or pod that is not followed."""

    label: str
    text: str


def disagreements(claim: Claim, occupancy: Occupancy) -> list[Disagreement]:
    """Of the labels of a claim and its pods, those that differ from its configuration and what was allocated."""
    pods = occupancy.pods_of(claim)
    return [*_groups(claim, pods, occupancy), *_jobs(claim, pods, occupancy)]


def _labelled(claim: Claim, pods: Sequence[Pod], label: str) -> Iterator[tuple[str, str]]:
    """Who has the label, and its value."""
    owners: list[tuple[str, Claim | Pod]] = [
        (f"claim {claim.name}", claim),
        *((f"pod {pod.name}", pod) for pod in pods),
    ]
    for who, owner in owners:
        yield who, owner.label_group if label == LABEL_GROUP else owner.label_job


def _groups(claim: Claim, pods: Sequence[Pod], occupancy: Occupancy) -> Iterator[Disagreement]:
    allocated = {occupancy.group_of(claim, use) for use in claim.uses} - {""}
    truth = sorted(allocated or claim.groups)
    for who, said in _labelled(claim, pods, LABEL_GROUP):
        if said and truth and said not in truth:
            what = "its GPUs are in" if allocated else "it asks for"
            text = f"{who} has label {LABEL_GROUP}={said}, but {what} group {listed(truth)}, which counts"
            yield Disagreement(LABEL_GROUP, text)


def _jobs(claim: Claim, pods: Sequence[Pod], occupancy: Occupancy) -> Iterator[Disagreement]:
    job = occupancy.job_of(claim)
    for who, said in _labelled(claim, pods, LABEL_JOB):
        if said and said != job:
            source = "configuration" if claim.config_job else "label"
            yield Disagreement(
                LABEL_JOB, f"{who} has label {LABEL_JOB}={said}, but the claim's {source} says {job}, which counts"
            )
    keys = {key for use in claim.uses for key in use.job_keys}
    if job and keys and capacity_key(job) not in keys:
        allocated = listed(sorted(keys))
        text = f"claim {claim.name} is of job {job}, but was allocated as {allocated}, so another job was kept apart"
        yield Disagreement(LABEL_JOB, text)
