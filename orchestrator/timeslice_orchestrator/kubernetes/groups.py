"""TimesliceGroups as they come from the API server: the good ones are in force, of a bad one its last good version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from timeslice_api.errors import ConfigError
from timeslice_api.kinds.group import TimesliceGroup, decode_group

from timeslice_orchestrator.kubernetes.conditions import MINE
from timeslice_orchestrator.kubernetes.raw import Raw, items


def kept_of_group(raw: dict[str, Any]) -> dict[str, Any]:
    """The raw object with what is read here alone: of the status, jobs and our conditions."""
    metadata = {key: value for key, value in raw["metadata"].items() if key != "managedFields"}
    mine = [condition for condition in items(raw, "status", "conditions") if condition.get("type") in MINE]
    status = {"jobs": list(items(raw, "status", "jobs")), "conditions": mine}
    return {**raw, "metadata": metadata, "status": status}


class Groups:
    """The groups of the cluster, by name."""

    def __init__(self) -> None:
        self._good: dict[str, TimesliceGroup] = {}
        self._raw: dict[str, Raw] = {}
        self._problems: dict[str, str] = {}

    def take(self, raw: Raw) -> bool:
        """Takes an object over. True when something changed beside its status.

        A group that does not decode keeps its last good spec, when this process has seen one; `problems` tells.
        """
        name = raw["metadata"]["name"]
        before = self._good.get(name), self._problems.get(name)
        if self._raw.get(name, {}).get("metadata", {}).get("uid") != raw["metadata"]["uid"]:
            self._good.pop(name, None)
        self._raw[name] = raw
        self._problems.pop(name, None)
        try:
            self._good[name] = decode_group(raw)
        except ConfigError as error:
            self._problems[name] = str(error)
        return _without_status(before[0]) != _without_status(self._good.get(name)) or before[1] != self._problems.get(
            name
        )

    def renew(self, raw: Raw) -> None:
        """Takes an object over that differs only in its version."""
        self._raw[raw["metadata"]["name"]] = raw

    def drop(self, raw: Raw) -> bool:
        """Forgets an object that is gone. True when it was in force."""
        name = raw["metadata"]["name"]
        if self._raw.get(name, {}).get("metadata", {}).get("uid") != raw["metadata"]["uid"]:
            return False
        del self._raw[name]
        self._problems.pop(name, None)
        return self._good.pop(name, None) is not None

    @property
    def good(self) -> Mapping[str, TimesliceGroup]:
        """The groups in force."""
        return self._good

    @property
    def raw(self) -> Mapping[str, Raw]:
        """All objects, as `kept_of_group` left them."""
        return self._raw

    @property
    def problems(self) -> Mapping[str, str]:
        """What is wrong with those that do not decode."""
        return self._problems


def _without_status(group: TimesliceGroup | None) -> object:
    return group and (group.spec, group.metadata.uid, group.deleted, group.metadata.finalizers)
