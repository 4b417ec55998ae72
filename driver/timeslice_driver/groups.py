"""Groups on one node: named sets of its devices. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from timeslice_api.errors import ConfigError, GroupNotFound, InvalidRequest
from timeslice_api.names import checked_name

ALL: Final = "all"


@dataclass(frozen=True)
class Groups:
    """Device ids by group id; a device is in at most one."""

    devices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def by_device(self) -> dict[str, str]:
        """The group of each device that is in one."""
        return {device_id: group_id for group_id, ids in self.devices.items() for device_id in ids}

    def __str__(self) -> str:
        return "; ".join(f"{group_id} = {', '.join(ids)}" for group_id, ids in sorted(self.devices.items())) or "none"

    def covered(self, group_id: str, wanted: Sequence[str] = ()) -> tuple[str, ...]:
        """The devices that a job covers in a group: those it wants, or all.

        Raises:
            GroupNotFound: there is no such group here; the message lists those there are.
            InvalidRequest: a wanted device is not in the group.
        """
        if group_id not in self.devices:
            known = ", ".join(sorted(self.devices)) or "none"
            raise GroupNotFound(f"no group {group_id!r} on this node; known: {known}", group_id=group_id)
        ids = self.devices[group_id]
        for device_id in wanted:
            if device_id not in ids:
                raise InvalidRequest(
                    f"device_ids: {device_id!r} is not in group {group_id} on this node; it has {', '.join(ids)}",
                    group_id=group_id,
                )
        return tuple(device_id for device_id in ids if device_id in wanted) if wanted else ids


def declared(wanted: Mapping[str, Sequence[str] | str], device_ids: Sequence[str]) -> Groups:
    """The groups of a node's configuration, checked against its devices.

    Raises:
        ConfigError: a device is in two groups or does not exist, or a group has none.
        InvalidRequest: a group's name is none.
    """
    devices: dict[str, tuple[str, ...]] = {}
    owner: dict[str, str] = {}
    for group_id, listed in wanted.items():
        checked_name(group_id, "groups")
        devices[group_id] = _resolved(group_id, listed, device_ids)
        for device_id in devices[group_id]:
            if device_id in owner:
                raise ConfigError(f"groups: {device_id} is in group {owner[device_id]} and in group {group_id}")
            owner[device_id] = group_id
    return Groups(devices)


def _resolved(group_id: str, listed: Sequence[str] | str, device_ids: Sequence[str]) -> tuple[str, ...]:
    if isinstance(listed, str):
        if listed != ALL:
            raise ConfigError(f"groups: {group_id} is {listed!r}; give a list of device ids, or {ALL!r}")
        return tuple(device_ids)
    for device_id in listed:
        if device_id not in device_ids:
            known = ", ".join(device_ids) or "none"
            raise ConfigError(f"groups: {group_id} names {device_id!r}, which this node does not have; it has {known}")
    if not listed:
        raise ConfigError(f"groups: {group_id} has no devices")
    return tuple(dict.fromkeys(listed))
