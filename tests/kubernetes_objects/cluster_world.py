"""A fake cluster with the watch running against it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from cluster_objects import Object
from dra_kubeletplugin.apiserver import CLAIMS, DEVICE_CLASSES, EVENTS, PODS, SLICES, ApiServer
from fake_api_server import FakeApiServer
from timeslice_orchestrator.discovery.groups_file import FileGroup
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.evictions import EvictionTimes
from timeslice_orchestrator.kubernetes.watching import Watching, WatchTimes

QUICK = WatchTimes(
    groups_s=0.01,
    reports_s=0.02,
    patience_s=0.2,
    linger_s=0.1,
    sync_s=2.0,
    evictions=EvictionTimes(grace_s=0.2, longest_s=2.0, retry_s=0.1),
)


class Told:
    """Discovery's place: what it was told."""

    def __init__(self) -> None:
        self.all: list[tuple[FileGroup, ...]] = []

    def groups_said(self, groups: tuple[FileGroup, ...]) -> None:
        self.all.append(groups)

    @property
    def names(self) -> list[str]:
        return [group.group_id for group in self.all[-1]]


class World:
    def __init__(self, server: FakeApiServer, api: ApiServer, told: Told) -> None:
        self.server, self.api, self.told = server, api, told
        self.watching: Watching | None = None

    async def watch(self, **times: Any) -> Watching:
        self.watching = Watching(self.api, self.told, times=replace(QUICK, **times), instance="leader-1")
        await self.watching.start()
        return self.watching

    async def stop(self) -> None:
        if self.watching:
            await self.watching.stop()

    async def put_group(self, raw: Object) -> Object:
        return await self.server.put(GROUPS, raw)

    async def put_slice(self, raw: Object) -> Object:
        return await self.server.put(SLICES, raw)

    async def put_claim(self, raw: Object, owner: Object | None = None) -> Object:
        """With the pod that the API server has as its owner and user."""
        if owner:
            ref = {"name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]}
            raw = {
                **raw,
                "metadata": {**raw["metadata"], "ownerReferences": [{"kind": "Pod", "controller": True, **ref}]},
            }
            if "status" in raw:
                raw = {**raw, "status": {**raw["status"], "reservedFor": [{"resource": "pods", **ref}]}}
        return await self.server.put(CLAIMS, raw)

    async def put_pod(self, raw: Object) -> Object:
        return await self.server.put(PODS, raw)

    def group(self, name: str) -> Object:
        found = self.server.one(GROUPS, name)
        assert found is not None, f"there is no group {name}"
        return found

    def jobs(self, name: str) -> list[str]:
        return list((self.group(name).get("status") or {}).get("jobs") or ())

    def conditions(self, name: str) -> dict[str, Object]:
        status = self.group(name).get("status") or {}
        return {condition["type"]: condition for condition in status.get("conditions") or ()}

    def device_class(self, name: str) -> Object | None:
        return self.server.one(DEVICE_CLASSES, f"{name}.timeslice.dev")

    def events(self, kind: str = "", reason: str = "") -> list[Object]:
        return [
            event
            for event in self.server.all(EVENTS)
            if kind in ("", event["regarding"]["kind"]) and reason in ("", event["reason"])
        ]

    def notes(self, kind: str = "", reason: str = "") -> list[str]:
        return [event["note"] for event in self.events(kind, reason)]


async def until(true: Callable[[], Any], within_s: float = 5.0) -> None:
    """Returns when it is true; there is no event for what a server has."""
    try:
        async with asyncio.timeout(within_s):
            while not true():
                await asyncio.sleep(0.01)
    except TimeoutError:
        raise AssertionError(f"not true within {within_s} s") from None
