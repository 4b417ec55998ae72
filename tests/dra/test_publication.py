from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio
from dra_kubeletplugin import DroppedFieldsError, Pool
from dra_samples import GIB, gpu, group, record
from timeslice_driver.dra.candidate import NodeView
from timeslice_driver.dra.checkpoint import Checkpoint
from timeslice_driver.dra.metrics import PluginMetrics
from timeslice_driver.dra.publication import Publication, mode_in_use
from timeslice_driver.dra.records import HeldDevice, Records

NEW = (1, 37, 2)


class Published:
    """Takes what is published, in place of the library."""

    def __init__(self, folder: Path) -> None:
        self.pools: list[Pool] = []
        self.news = asyncio.Event()
        self.view = NodeView((gpu(0),), {"rl-a": group("rl-a")}, {}, 160 * GIB)
        self.checkpoint = Checkpoint(folder)
        self.checkpoint.update(lambda _: Records("boot-1"))
        self.metrics = PluginMetrics()
        self.publication = Publication(self.checkpoint, lambda: self.view, self.metrics, pool="node-a", wanted="auto")

    def publish(self, pools: Mapping[str, Pool]) -> None:
        (pool,) = pools.values()
        self.pools.append(pool)
        self.news.set()

    async def next(self) -> Pool:
        async with asyncio.timeout(3):
            await self.news.wait()
        self.news.clear()
        return self.pools[-1]


@pytest_asyncio.fixture
async def published(tmp_path: Path) -> AsyncIterator[Published]:
    made = Published(tmp_path / "state")
    task = asyncio.create_task(made.publication.run(made, NEW))
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def names(pool: Pool) -> list[str]:
    return [device["name"] for each in pool.slices for device in each.devices]


async def test_lanes_are_published_at_once_counters_in_a_slice_of_their_own(published: Published) -> None:
    pool = await published.next()
    assert names(pool) == ["gpu-0-rl-a"]
    assert [bool(each.shared_counters) for each in pool.slices] == [True, False]


async def test_changes_that_come_together_are_published_once_and_none_not_at_all(published: Published) -> None:
    await published.next()
    published.view = replace(published.view, groups={"rl-b": group("rl-b")})
    for _ in range(5):
        published.publication.change()
    assert names(await published.next()) == ["gpu-0-rl-b"]
    published.publication.change()
    await asyncio.sleep(0.1)
    assert len(published.pools) == 2


async def test_a_server_that_drops_what_lanes_need_gets_slots_and_the_log_says_why(
    published: Published, caplog: pytest.LogCaptureFixture
) -> None:
    await published.next()
    published.publication.dropped(DroppedFieldsError("node-a", ["devices.consumesCounters", "sharedCounters"]))
    assert names(await published.next()) == ["gpu-0-slot-0", "gpu-0-slot-1"]
    assert "turn on the feature gates" in caplog.text
    published.publication.dropped(DroppedFieldsError("node-a", ["devices.taints"]))
    published.publication.change()
    await asyncio.sleep(0.1)
    assert len(published.pools) == 2, "what slots lose changes nothing any more"


async def test_lanes_stay_while_claims_are_prepared_though_the_server_drops_fields_now(published: Published) -> None:
    await published.next()
    published.checkpoint.update(lambda records: records.with_claim(record("u", "GPU-0")))
    published.publication.dropped(DroppedFieldsError("node-a", ["sharedCounters"]))
    assert names(await published.next()) == ["gpu-0-rl-a"]
    published.checkpoint.update(lambda records: records.without_claims("u"))
    published.publication.change()
    assert names(await published.next()) == ["gpu-0-slot-0", "gpu-0-slot-1"]


async def test_devices_are_counted_by_mode(published: Published) -> None:
    await published.next()
    published.view = replace(published.view, gpus=(gpu(0), gpu(1)))
    published.publication.change()
    await published.next()
    read = published.metrics.registry.get_sample_value
    assert read("timeslice_devices_published", {"mode": "lanes"}) == 2
    assert read("timeslice_devices_published", {"mode": "slots"}) == 0


def test_the_mode_in_use_is_told_by_the_devices_of_the_claims() -> None:
    lane = record("u", "GPU-0")
    slot = replace(lane, uid="v", devices=(HeldDevice("gpu", "node-a", "gpu-0-slot-1", "GPU-0"),))
    assert mode_in_use(Records()) is None
    assert mode_in_use(Records(claims={"u": lane})) == "lanes"
    assert mode_in_use(Records(claims={"v": slot})) == "slots"
    assert mode_in_use(Records(claims={"v": replace(slot, state="unprepared")})) is None
