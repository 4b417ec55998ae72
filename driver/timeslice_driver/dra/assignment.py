"""Whose a claim is: its job and its group, from configuration, labels and the devices themselves. Pure.

Precedence of configuration, as other drivers have it: the class's entries before the claim's, later ones win; an entry
is taken whole. But the group that a class names is the administrator's word, and a claim may only repeat it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dra_kubeletplugin import AllocatedDevice, Claim, OpaqueConfig
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import TimesliceConfig, decode_config
from timeslice_api.kinds import names as kinds

from timeslice_driver.dra import device_names, refusals


@dataclass(frozen=True)
class Assignment:
    """The job and the group of all of a claim's devices."""

    job: str
    group: str


def assign(claim: Claim, pod_labels: Iterable[Mapping[str, str]]) -> Assignment:
    """The claim's job and group.

    Args:
        claim: with at least one share of ours.
        pod_labels: of its pods.

    Raises:
        RefusedError: ConfigInvalid or JobUnknown.
    """
    decoded = [(entry, _decoded(entry, claim)) for entry in claim.configs()]
    groups = {share.device: _group(share, decoded) for share in claim.results}
    if len(set(groups.values())) > 1:
        pairs = ", ".join(f"{device} is in {group}" for device, group in sorted(groups.items()))
        raise refusals.config_invalid(
            f"the devices of one claim are in several groups: {pairs}", "make a claim for each"
        )
    return Assignment(_job(claim, decoded, pod_labels), next(iter(groups.values())))


def _decoded(entry: OpaqueConfig, claim: Claim) -> TimesliceConfig:
    where = "the DeviceClass" if entry.source == "FromClass" else f"claim {claim.ref.namespace}/{claim.ref.name}"
    try:
        return decode_config(entry.parameters, where)
    except ConfigError as error:
        mend = (
            "correct the DeviceClass" if entry.source == "FromClass" else "correct the claim (its template) and its pod"
        )
        raise refusals.config_invalid(error.message, error.hint or mend) from error


def _group(share: AllocatedDevice, decoded: list[tuple[OpaqueConfig, TimesliceConfig]]) -> str:
    """A lane's own group is the truth; a slot has none, and gets that of its class."""
    concerned = [(entry, config) for entry, config in decoded if config.group and entry.concerns(share.request)]
    named = [config.group for entry, config in concerned if entry.source == "FromClass"]
    name = device_names.parse(share.device)
    group = (name.group if name else None) or (named[-1] if named else None)
    if group is None:
        message = f"nothing says which group {share.device} is to be in"
        raise refusals.config_invalid(message, "use the DeviceClass of a group: <group>.timeslice.dev")
    for entry, config in concerned:
        if config.group != group:
            source = "its DeviceClass" if entry.source == "FromClass" else "its own configuration"
            message = f"{share.device} is in group {group}, but {source} says {config.group}"
            raise refusals.config_invalid(message, "leave the group out, or use the DeviceClass of that group")
    return group


def _job(
    claim: Claim, decoded: list[tuple[OpaqueConfig, TimesliceConfig]], pod_labels: Iterable[Mapping[str, str]]
) -> str:
    """Configuration (the claim's wins) > label of the claim > label of its pods."""
    configured = {share.device: _configured_job(share, decoded) for share in claim.results}
    if len(set(configured.values())) > 1:
        raise refusals.config_invalid(
            "the configuration gives the devices of one claim different jobs", "make a claim for each"
        )
    of_pods = sorted({labels[kinds.LABEL_JOB] for labels in pod_labels if kinds.LABEL_JOB in labels})
    job = next(iter(configured.values())) or claim.labels.get(kinds.LABEL_JOB) or (of_pods[0] if of_pods else "")
    if not job:
        raise refusals.job_unknown()
    try:
        return kinds.checked_job_name(job, f"label {kinds.LABEL_JOB}")
    except ConfigError as error:
        raise refusals.config_invalid(error.message, error.hint) from error


def _configured_job(share: AllocatedDevice, decoded: list[tuple[OpaqueConfig, TimesliceConfig]]) -> str:
    jobs = [config.job for entry, config in decoded if config.job and entry.concerns(share.request)]
    return jobs[-1] if jobs else ""
