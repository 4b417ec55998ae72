"""A lead for tests, and groups at the fake API server."""

from __future__ import annotations

from typing import Any, cast

from dra_kubeletplugin.apiserver import ApiServer, Leadership
from fake_api_server import FakeApiServer
from timeslice_orchestrator.core.model import Lease, LeaseRecord, RequestRecord
from timeslice_orchestrator.kubernetes.cluster import GROUPS
from timeslice_orchestrator.kubernetes.status_store import StatusStore


class Office:
    """What a store needs of a leadership."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    async def raise_epoch(self, above: int) -> int:
        self.epoch = max(self.epoch, above + 1)
        return self.epoch


async def opened(api: ApiServer, epoch: int) -> StatusStore:
    """The store of a leader of that epoch."""
    return await StatusStore.open(api, cast(Leadership, Office(epoch)))


async def make_groups(server: FakeApiServer, *names: str) -> None:
    for name in names:
        body = {"apiVersion": GROUPS.api_version, "kind": "TimesliceGroup", "metadata": {"name": name}, "spec": {}}
        await server.put(GROUPS, body)


def status_of(server: FakeApiServer, name: str) -> dict[str, Any]:
    group = server.one(GROUPS, name)
    assert group is not None
    return dict(group.get("status") or {})


def patches(server: FakeApiServer) -> list[str]:
    """The groups whose status was patched, in order."""
    return [call.place.name for call in server.calls if call.method == "PATCH"]


def request(request_id: str, job: str = "job-b", *groups: str, ticket: int = 1, holder: str = "") -> RequestRecord:
    return RequestRecord(request_id, job, groups or ("g1",), ticket, holder)


def lease(request_id: str, job: str, *groups: str, devices: tuple[str, ...] = ("d1",), token: int = 1) -> LeaseRecord:
    made = Lease(f"lease-{request_id}", request_id, job, groups or ("g1",), frozenset(devices), token, 30.0)
    return LeaseRecord(made)
