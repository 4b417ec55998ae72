"""What `helm uninstall` runs first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from dra_kubeletplugin.apiserver import CLAIMS, PODS, SLICES
from fake_api_server import FakeApiServer, Refusal
from timeslice_api.errors import OperationFailed, Unavailable
from timeslice_api.kinds import names
from timeslice_driver.uninstall import DAEMON_SETS, DEPLOYMENTS, GROUPS, Installation, main, uninstall

INSTALLATION = Installation("timeslice", "timeslice-node", "timeslice-orchestrator", "app=timeslice")


@pytest.fixture
async def server() -> AsyncIterator[FakeApiServer]:
    async with FakeApiServer() as running:
        await running.put(DAEMON_SETS, named("timeslice-node", "timeslice"))
        await running.put(DEPLOYMENTS, named("timeslice-orchestrator", "timeslice"))
        await running.put(PODS, named("node-1", "timeslice", labels={"app": "timeslice"}))
        await running.put(SLICES, named("ours") | {"spec": {"driver": names.DRIVER}})
        await running.put(SLICES, named("theirs") | {"spec": {"driver": "gpu.nvidia.com"}})
        await running.put(GROUPS, named("rl-a", finalizers=[names.FINALIZER, "example.com/keep"]))
        yield running


def named(name: str, namespace: str = "", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **({"namespace": namespace} if namespace else {}), **metadata}}


def claim(name: str, driver: str = names.DRIVER) -> dict[str, Any]:
    results = [{"driver": driver, "pool": "node-a", "device": "gpu-0-rl-a", "request": "gpu"}]
    return named(name, "ml") | {"status": {"allocation": {"devices": {"results": results}}}}


async def end_pod_when_its_daemon_goes(server: FakeApiServer) -> None:
    while server.one(DAEMON_SETS, "timeslice-node", namespace="timeslice"):
        await asyncio.sleep(0.01)
    await server.remove(PODS, "node-1", namespace="timeslice")


async def run(server: FakeApiServer, timeout_s: float = 5.0) -> None:
    ending = asyncio.create_task(end_pod_when_its_daemon_goes(server))
    try:
        async with server.connect() as api:
            await uninstall(api, INSTALLATION, timeout_s=timeout_s)
    finally:
        ending.cancel()


async def test_daemons_end_then_our_slices_go_and_groups_can_be_deleted(server: FakeApiServer) -> None:
    order: list[str] = []
    server.hooks.append(lambda call: order.append(f"{call.method} {call.place.plural}"))
    await run(server)
    assert server.all(DAEMON_SETS) == server.all(DEPLOYMENTS) == []
    assert [each["metadata"]["name"] for each in server.all(SLICES)] == ["theirs"]
    group = server.one(GROUPS, "rl-a")
    assert group is not None
    assert group["metadata"]["finalizers"] == ["example.com/keep"]
    assert order.index("DELETE daemonsets") < order.index("GET pods") < order.index("DELETE resourceslices")


async def test_allocated_claims_are_named_and_nothing_is_touched(server: FakeApiServer) -> None:
    for number in range(7):
        await server.put(CLAIMS, claim(f"gpu-{number}"))
    with pytest.raises(OperationFailed, match=r"claims still have GPUs of .*: ml/gpu-0, .*, ml/gpu-4 and 2 more"):
        await run(server)
    assert {call.method for call in server.calls} == {"GET"}


async def test_claims_of_others_and_claims_that_wait_do_not_matter(server: FakeApiServer) -> None:
    await server.put(CLAIMS, claim("theirs", "gpu.nvidia.com"))
    await server.put(CLAIMS, named("waiting", "ml"))
    await run(server)
    assert [each["metadata"]["name"] for each in server.all(SLICES)] == ["theirs"]


async def test_a_second_run_finds_nothing_to_do(server: FakeApiServer) -> None:
    await run(server)
    before = len(server.calls)
    async with server.connect() as api:
        await uninstall(api, INSTALLATION, timeout_s=5)
    assert {call.method for call in server.calls[before:]} == {"GET", "DELETE"}


async def test_a_pod_that_does_not_go_is_named_and_its_slices_stay(server: FakeApiServer) -> None:
    async with server.connect() as api:
        with pytest.raises(Unavailable, match=r"after 0\.3 s these pods are still there: node-1"):
            await uninstall(api, INSTALLATION, timeout_s=0.3)
    assert len(server.all(SLICES)) == 2


async def test_a_group_that_is_written_meanwhile_is_released_all_the_same(server: FakeApiServer) -> None:
    server.refuse("PATCH", names.PLURAL_GROUP, Refusal(409, "Conflict"), times=2)
    await run(server)
    group = server.one(GROUPS, "rl-a")
    assert group is not None
    assert group["metadata"]["finalizers"] == ["example.com/keep"]


async def test_the_program_says_why_it_refuses(
    server: FakeApiServer, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    await server.put(CLAIMS, claim("gpu"))
    flags = ["--namespace=timeslice", "--daemon-set=a", "--deployment=b", "--pods=c"]
    kubeconfig = f"--kubeconfig={server.kubeconfig(tmp_path / 'config')}"
    assert await asyncio.to_thread(main, [*flags, kubeconfig]) == 1
    assert "claims still have GPUs of gpu.timeslice.dev: ml/gpu (end their pods first" in capsys.readouterr().err
