from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from dra_kubeletplugin.apiserver import NODES
from dra_samples import GIB, NODE
from fake_api_server import FakeApiServer
from timeslice_api.kinds import TimesliceGroup, decode_group
from timeslice_driver.dra.cluster import GROUPS, Cluster


def raw_group(name: str, *, spec: Any = None, **status: Any) -> dict[str, Any]:
    metadata = {"name": name}
    return {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceGroup", "metadata": metadata,
            "spec": spec or {}, "status": status}  # fmt: skip


def raw_node(name: str = NODE, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "status": {"allocatable": {"memory": "64Gi"}}}


class Followed:
    def __init__(self, server: FakeApiServer, cluster: Cluster) -> None:
        self.server = server
        self.cluster = cluster
        self.changes = 0
        self.news = asyncio.Event()

    def change(self) -> None:
        self.changes += 1
        self.news.set()

    async def next(self) -> None:
        async with asyncio.timeout(3):
            await self.news.wait()
        self.news.clear()


@pytest_asyncio.fixture
async def followed() -> AsyncIterator[Followed]:
    async with FakeApiServer() as server, server.connect() as api:
        await server.put(NODES, raw_node(pool="h100"))
        await server.put(NODES, raw_node("another", pool="a100"))
        await server.put(GROUPS, raw_group("rl-a", jobs=["x"]))
        made = Followed(server, Cluster(api, NODE, lambda: made.change()))
        assert made.cluster.groups is None
        task = asyncio.create_task(made.cluster.run())
        async with asyncio.timeout(5):
            await made.cluster.heard()
        made.news.clear()
        yield made
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_groups_and_the_own_node_are_followed(followed: Followed) -> None:
    cluster = followed.cluster
    assert cluster.groups is not None
    assert cluster.groups["rl-a"].jobs == ("x",)
    assert cluster.labels == {"pool": "h100"}
    assert cluster.allocatable_memory == 64 * GIB
    await followed.server.put(GROUPS, raw_group("rl-b", spec={"seats": 3}))
    await followed.next()
    assert cluster.groups["rl-b"].spec.seats == 3
    await followed.server.remove(GROUPS, "rl-a")
    await followed.next()
    assert set(cluster.groups) == {"rl-b"}


async def test_what_the_orchestrator_writes_all_the_time_is_no_news(followed: Followed) -> None:
    changes = followed.changes
    await followed.server.put(GROUPS, raw_group("rl-a", jobs=["x"], holder="x", waiting=3, records={"epoch": 7}))
    await followed.server.put(NODES, {**raw_node(pool="h100"), "status": {"allocatable": {"memory": "64Gi"}, "x": 1}})
    await followed.server.put(GROUPS, raw_group("rl-a", jobs=["x", "y"], holder="y"))
    await followed.next()
    assert followed.changes == changes + 1
    assert followed.cluster.groups is not None
    assert followed.cluster.groups["rl-a"].jobs == ("x", "y")


async def test_a_change_of_one_group_is_no_work_for_the_others(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[str] = []

    def decode(raw: dict[str, Any]) -> TimesliceGroup:
        decoded.append(raw["metadata"]["name"])
        return decode_group(raw)

    monkeypatch.setattr("timeslice_driver.dra.cluster.decode_group", decode)
    for number in range(20):
        await followed.server.put(GROUPS, raw_group(f"other-{number}"))
        await followed.next()
    await followed.server.put(GROUPS, raw_group("rl-a", jobs=["x", "y"]))
    await followed.next()
    assert decoded == [*(f"other-{number}" for number in range(20)), "rl-a"]


async def test_a_new_label_of_the_node_is_news(followed: Followed) -> None:
    await followed.server.put(NODES, raw_node(pool="h200"))
    await followed.next()
    assert followed.cluster.labels == {"pool": "h200"}


async def test_a_group_of_an_unknown_form_is_left_out_and_named(
    followed: Followed, caplog: pytest.LogCaptureFixture
) -> None:
    await followed.server.put(GROUPS, raw_group("odd", spec={"sets": 2}))
    await followed.next()
    assert followed.cluster.groups is not None
    assert set(followed.cluster.groups) == {"rl-a"}
    assert "TimesliceGroup odd: spec.sets is not a field of it (did you mean seats?)" in caplog.text
