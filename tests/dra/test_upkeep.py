from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest_asyncio
from dra_kubeletplugin import Claim
from dra_kubeletplugin.apiserver import CLAIMS, SLICES, ApiServer
from dra_samples import DRIVER, GIB, NODE, gpu, group, raw_claim, record
from fake_api_server import FakeApiServer
from timeslice_driver.dra import upkeep
from timeslice_driver.dra.alive import living_pods
from timeslice_driver.dra.candidate import NodeView, candidate
from timeslice_driver.dra.cdi import CdiFolder, Wiring, spec
from timeslice_driver.dra.lanes import lanes
from timeslice_driver.dra.offers import Offer
from timeslice_driver.processes import ProcFs

VIEW = NodeView((gpu(0), gpu(1)), {"rl-a": group("rl-a")}, {}, 320 * GIB)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as made:
        yield made


@pytest_asyncio.fixture
async def api(server: FakeApiServer) -> AsyncIterator[ApiServer]:
    async with server.connect() as made:
        yield made


def living(*alive: str) -> Any:
    def among(uids: Sequence[str]) -> frozenset[str]:
        return frozenset(alive).intersection(uids)

    return among


async def put_claim(server: FakeApiServer, **options: Any) -> str:
    """The UID that the server gave it."""
    written = await server.put(CLAIMS, raw_claim("u", "gpu-0-rl-a", **options))
    return str(written["metadata"]["uid"])


async def test_a_claim_that_is_there_is_not_gone(server: FakeApiServer, api: ApiServer) -> None:
    uid = await put_claim(server)
    there = replace(record("u", "GPU-0", pods={"p": "pod"}), uid=uid)
    assert await upkeep.gone_claims(api, [there], living()) == []


async def test_a_deleted_claim_is_gone_once_its_pods_have_ended(api: ApiServer) -> None:
    claim = record("u", "GPU-0", pods={"p": "pod"})
    assert await upkeep.gone_claims(api, [claim], living("p")) == []
    assert await upkeep.gone_claims(api, [claim], living()) == [claim]


async def test_a_claim_whose_name_another_one_has_is_gone(server: FakeApiServer, api: ApiServer) -> None:
    await put_claim(server)
    replaced = record("u", "GPU-0")
    assert await upkeep.gone_claims(api, [replaced], living()) == [replaced]


async def test_a_claim_that_is_no_longer_allocated_is_gone(server: FakeApiServer, api: ApiServer) -> None:
    raw = raw_claim("u", "gpu-0-rl-a") | {"status": {}}
    uid = (await server.put(CLAIMS, raw))["metadata"]["uid"]
    freed = replace(record("u", "GPU-0"), uid=uid)
    assert await upkeep.gone_claims(api, [freed], living()) == [freed]


async def test_lost_records_are_found_in_slices_claims_and_cdi_specs(
    server: FakeApiServer, api: ApiServer, tmp_path: Path
) -> None:
    swapped = (gpu(0, uuid="GPU-b"), gpu(1, uuid="GPU-a"))
    for part in ({"sharedCounters": []}, {"devices": list(lanes(swapped, [Offer("rl-a")], host_memory=GIB).devices)}):
        body = {"metadata": {"generateName": "s-"}, "spec": {"driver": DRIVER, "nodeName": NODE, **part}}
        await server.put(SLICES, body)
    foreign = {"driver": DRIVER, "nodeName": "another", "devices": [{"name": "gpu-9-rl-a"}]}
    await server.put(SLICES, {"metadata": {"generateName": "s-"}, "spec": foreign})
    assert await upkeep.numbers_as_published(api, NODE) == {"GPU-b": 0, "GPU-a": 1}

    uid = await put_claim(server, pods=("pod-1",), memory="3Gi")
    raw = server.one(CLAIMS, "claim-u", namespace="rl")
    assert raw
    prepared = candidate(Claim.of({**raw, "metadata": {**raw["metadata"], "labels": {"timeslice.dev/job": "j"}}},
                                  driver=DRIVER), VIEW, ())  # fmt: skip
    cdi = CdiFolder(tmp_path)
    cdi.write(uid, spec(prepared, Wiring("", tmp_path), {"GPU-0": [Path("/dev/nvidia0")]}))
    await server.put(CLAIMS, raw_claim("never-prepared", "gpu-1-rl-a"))
    (found,) = await upkeep.claims_as_allocated(api, NODE, VIEW, cdi)
    assert found == replace(prepared, state="completed")


async def test_a_spec_that_tells_no_job_is_not_taken_over(
    server: FakeApiServer, api: ApiServer, tmp_path: Path
) -> None:
    cdi = CdiFolder(tmp_path)
    cdi.write(await put_claim(server), {})
    assert await upkeep.claims_as_allocated(api, NODE, VIEW, cdi) == ()


def test_living_pods_are_those_whose_cgroups_have_processes(tmp_path: Path) -> None:
    alive, ended = "0f1e2d3c-0000-4000-8000-00000000000a", "0f1e2d3c-0000-4000-8000-00000000000b"
    for pid, text in (("7", f"0::/kubepods/burstable/pod{alive}/abc\n"), ("8", "0::/user.slice\n")):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "cgroup").write_text(text)
    assert living_pods(ProcFs(tmp_path), [alive, ended]) == {alive}
    assert living_pods(ProcFs(tmp_path), []) == frozenset()
