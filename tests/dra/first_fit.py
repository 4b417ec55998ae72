"""The scheduler's allocator as far as lanes depend on it: devices in order, counters once, capacities added up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from timeslice_api.kinds import bytes_of
from timeslice_driver.dra.content import Content


class FirstFit:
    """Allocates claims on the devices of a pool: `allocate` gives device names, or None: the claim stays pending."""

    def __init__(self, content: Content) -> None:
        self._devices = content.devices
        self._room = {
            each["name"]: bytes_of(each["counters"]["lane"]["value"], "lane") for each in content.counter_sets
        }
        self._claims: dict[str, list[tuple[str, dict[str, int]]]] = {}

    def allocate(self, claim: str, group: str, *, count: int = 1, **requests: str) -> list[str] | None:
        chosen: list[tuple[str, dict[str, int]]] = []
        for device in self._devices:
            if len(chosen) < count and self._fits(device, group, requests):
                chosen.append((device["name"], _amounts(device, requests)))
        if len(chosen) < count:
            return None
        self._claims[claim] = chosen
        return [name for name, _ in chosen]

    def release(self, claim: str) -> None:
        del self._claims[claim]

    def _fits(self, device: Mapping[str, Any], group: str, requests: Mapping[str, str]) -> bool:
        if device["attributes"]["group"]["string"] != group or device.get("taints"):
            return False
        if not set(requests) <= set(device["capacity"]):
            return False
        consumed = self._consumed(device["name"])
        wanted = _amounts(device, requests)
        values = {key: bytes_of(capacity["value"], key) for key, capacity in device["capacity"].items()}
        in_use = any(name == device["name"] for taken in self._claims.values() for name, _ in taken)
        return (in_use or self._lane_free(device)) and all(consumed[key] + wanted[key] <= values[key] for key in values)

    def _lane_free(self, device: Mapping[str, Any]) -> bool:
        (consumes,) = device["consumesCounters"]
        others = {name for taken in self._claims.values() for name, _ in taken}
        using = [
            each for each in self._devices
            if each["name"] in others and each["consumesCounters"][0]["counterSet"] == consumes["counterSet"]
        ]  # fmt: skip
        return len(using) < self._room[consumes["counterSet"]]

    def _consumed(self, device: str) -> dict[str, int]:
        total: dict[str, int] = defaultdict(int)
        for taken in self._claims.values():
            for name, amounts in taken:
                if name == device:
                    for key, amount in amounts.items():
                        total[key] += amount
        return total


def _amounts(device: Mapping[str, Any], requests: Mapping[str, str]) -> dict[str, int]:
    return {
        key: bytes_of(requests.get(key, capacity["requestPolicy"]["default"]), key)
        for key, capacity in device["capacity"].items()
    }
