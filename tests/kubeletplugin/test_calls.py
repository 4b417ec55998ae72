from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
from dra_kubeletplugin import CallReport, Claim, ClaimRef, Plugin, PreparedDevice, PrepareError, request_id
from dra_kubeletplugin.apiserver import CLAIMS, PODS, ApiServer
from fake_api_server import FakeApiServer, Refusal
from fake_kubelet import FakeKubelet
from scripted_driver import ScriptedDriver, allocate, result

NewPlugin = Callable[..., Plugin]


async def test_a_claim_is_prepared_with_its_devices(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c", result("gpu-0"), result("gpu-1", request="other"))
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(ref)
    devices = [(device.pool_name, device.device_name, list(device.request_names)) for device in answer[ref.uid].devices]
    assert devices == [("node-a", "gpu-0", ["gpu"]), ("node-a", "gpu-1", ["other"])]
    assert list(answer[ref.uid].devices[0].cdi_device_ids) == ["example.com/gpu=gpu-0"]
    assert not answer[ref.uid].error
    assert driver.prepared[0].pods[0].name == "pod-of-c"


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
async def test_both_versions_of_the_interface_are_served(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, version: str
) -> None:
    ref = await allocate(server, "c", result("gpu-0", shareID="s-1"))
    async with new_plugin():
        await kubelet.register_all()
        (device,) = (await kubelet.prepare(ref, version=version))[ref.uid].devices
        unprepared = await kubelet.unprepare(ref, version=version)
    assert (device.device_name, getattr(device, "share_id", None)) == ("gpu-0", "s-1" if version == "v1" else None)
    assert list(unprepared) == [ref.uid]
    assert not unprepared[ref.uid].error


async def test_a_device_that_is_not_shared_has_no_share_id(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    ref = await allocate(server, "c")
    async with new_plugin():
        await kubelet.register_all()
        (device,) = (await kubelet.prepare(ref))[ref.uid].devices
    assert not device.HasField("share_id")


async def test_kubelet_is_told_main_requests_only_and_each_once(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c", result("gpu-0", request="gpu/large"))
    driver.devices = lambda claim: [PreparedDevice("p", "d", requests=("gpu/large", "gpu", "x/y"))]
    async with new_plugin():
        await kubelet.register_all()
        (device,) = (await kubelet.prepare(ref))[ref.uid].devices
    assert list(device.request_names) == ["gpu", "x"]


async def test_a_claim_that_does_not_exist_fails_alone(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref, missing = await allocate(server, "c"), ClaimRef("jobs", "none", "u-1")
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(missing, ref)
    assert answer["u-1"].error == "claim jobs/none does not exist"
    assert len(answer[ref.uid].devices) == 1
    assert [claim.ref for claim in driver.prepared] == [ref]


async def test_a_claim_of_the_same_name_with_another_uid_is_not_touched(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    await allocate(server, "c")
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(ClaimRef("jobs", "c", "old"))
    assert "got replaced" in answer["old"].error
    assert not driver.prepared


async def test_a_claim_that_is_not_allocated_is_refused(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    raw = await server.put(CLAIMS, {"metadata": {"namespace": "jobs", "name": "c"}})
    uid = raw["metadata"]["uid"]
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(ClaimRef("jobs", "c", uid))
    assert "is not allocated" in answer[uid].error
    assert not driver.prepared


async def test_an_api_server_that_fails_is_an_error_of_the_claim(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    ref = await allocate(server, "c")
    server.refuse("GET", "resourceclaims", Refusal(500, "InternalError", "etcd is away"))
    async with new_plugin():
        await kubelet.register_all()
        assert "etcd is away" in (await kubelet.prepare(ref))[ref.uid].error
        assert not (await kubelet.prepare(ref))[ref.uid].error


async def test_claims_come_with_their_pods_where_the_driver_wants_them(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    claim = server.one(CLAIMS, "c", namespace="jobs")
    assert claim
    pod = await server.put(PODS, {"metadata": {"namespace": "jobs", "name": "pod-of-c"}})
    replaced = await server.put(PODS, {"metadata": {"namespace": "jobs", "name": "other"}})
    uids = {"pod-of-c": pod["metadata"]["uid"], "other": f"not-{replaced['metadata']['uid']}", "gone": "u-1"}
    reserved = [{"resource": "pods", "name": name, "uid": uid} for name, uid in uids.items()]
    await server.put(CLAIMS, claim | {"status": claim["status"] | {"reservedFor": reserved}})
    async with new_plugin(pods=True):
        await kubelet.register_all()
        assert not (await kubelet.prepare(ref))[ref.uid].error
    assert driver.prepared[0].pod_objects == (pod,)


@pytest.mark.parametrize(("status", "told"), [(403, ""), (500, "cannot read pod jobs/pod-of-c of the claim")])
async def test_a_pod_that_may_not_be_read_is_left_out_and_one_that_cannot_fails_its_claim(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, status: int, told: str
) -> None:
    ref = await allocate(server, "c")
    server.refuse("GET", "pods", Refusal(status, "InternalError"))
    async with new_plugin(pods=True):
        await kubelet.register_all()
        assert (await kubelet.prepare(ref))[ref.uid].error.partition(":")[0] == told
        assert not (await kubelet.prepare(ref))[ref.uid].error


async def test_pods_are_not_asked_for_where_the_driver_does_not_want_them(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    async with new_plugin():
        await kubelet.register_all()
        await kubelet.prepare(ref)
    assert driver.prepared[0].pod_objects == ()
    assert "pods" not in {call.place.plural for call in server.calls}


async def test_devices_of_other_drivers_are_not_shown(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c", result("nic-0", driver="nic.example.com"), result("gpu-0"))
    async with new_plugin():
        await kubelet.register_all()
        await kubelet.prepare(ref)
    assert [found.device for found in driver.prepared[0].results] == ["gpu-0"]


async def test_a_refusal_of_one_claim_leaves_the_others(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    good, bad = await allocate(server, "good"), await allocate(server, "bad")

    def devices(claim: Claim) -> list[PreparedDevice] | PrepareError:
        return PrepareError("no seat") if claim.ref == bad else [PreparedDevice("p", "d")]

    driver.devices = devices
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(good, bad)
    assert (answer[good.uid].error, answer[bad.uid].error) == ("", "no seat")


async def test_an_error_without_text_is_still_an_error(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    driver.devices = lambda claim: PrepareError("")
    async with new_plugin():
        await kubelet.register_all()
        assert (await kubelet.prepare(ref))[ref.uid].error


async def test_a_defect_of_the_driver_reaches_the_pod_with_its_text(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    driver.raises = KeyError("uuid")
    async with new_plugin():
        await kubelet.register_all()
        assert "KeyError('uuid')" in (await kubelet.prepare(ref))[ref.uid].error
        assert "KeyError('uuid')" in (await kubelet.unprepare(ref))[ref.uid].error
        driver.raises = None
        assert not (await kubelet.prepare(ref))[ref.uid].error, "the lock is free again"


async def test_a_driver_may_refuse_all_claims_of_a_call_at_once(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    first, second = await allocate(server, "a"), await allocate(server, "b")
    driver.raises = PrepareError("not now")
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(first, second)
        assert [answer[ref.uid].error for ref in (first, second)] == ["not now", "not now"]


async def test_a_lock_that_cannot_be_taken_is_an_error_of_each_claim(
    kubelet: FakeKubelet, new_plugin: NewPlugin, folder: Path
) -> None:
    async with new_plugin():
        await kubelet.register_all()
        (folder / "data/serialize.lock").mkdir()
        assert "cannot take the lock" in (await kubelet.unprepare(ClaimRef("jobs", "c", "u-1")))["u-1"].error


async def test_metadata_that_cannot_be_written_fails_the_claim(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver, folder: Path
) -> None:
    ref = await allocate(server, "c")
    driver.devices = lambda claim: [PreparedDevice("p", "d", metadata={})]
    (folder / "cdi").write_text("a file where a folder should be")
    async with new_plugin(metadata=True):
        await kubelet.register_all()
        assert "cannot write the files" in (await kubelet.prepare(ref))[ref.uid].error


async def test_a_claim_that_the_driver_forgets_has_failed(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")

    async def forget(claims: object) -> dict[str, PrepareError | None]:
        return {"somebody": None}

    driver.unprepare = forget  # type: ignore[method-assign]
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.unprepare(ref)
    assert list(answer) == [ref.uid]
    assert "gave no answer" in answer[ref.uid].error


async def test_unprepare_needs_no_claim(kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver) -> None:
    ref = ClaimRef("jobs", "gone", "u-1")
    async with new_plugin():
        await kubelet.register_all()
        assert not (await kubelet.unprepare(ref))["u-1"].error
    assert driver.unprepared == [ref]


async def test_a_call_about_nothing_does_not_trouble_the_driver(
    kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    async with new_plugin():
        await kubelet.register_all()
        assert not await kubelet.prepare()
        assert not await kubelet.unprepare()
    assert not driver.entered.is_set()


async def test_of_very_many_claims_only_a_few_are_read_at_the_same_time(
    server: FakeApiServer,
    kubelet: FakeKubelet,
    new_plugin: NewPlugin,
    driver: ScriptedDriver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reading, most = 0, 0
    get = ApiServer.get

    async def counted(api: ApiServer, *args: Any, **named: Any) -> Any:
        nonlocal reading, most
        reading += 1
        most = max(most, reading)
        try:
            return await get(api, *args, **named)
        finally:
            reading -= 1

    monkeypatch.setattr(ApiServer, "get", counted)
    refs = [await allocate(server, f"c{number}", result(f"gpu-{number}")) for number in range(30)]
    async with new_plugin():
        await kubelet.register_all()
        answer = await kubelet.prepare(*refs)
    assert {uid for uid, entry in answer.items() if not entry.error} == {ref.uid for ref in refs}
    assert 1 < most <= 8


async def test_calls_are_one_at_a_time(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    refs = [await allocate(server, f"c{number}") for number in range(8)]
    async with new_plugin():
        await kubelet.register_all()
        await asyncio.gather(*(kubelet.prepare(ref) for ref in refs), *(kubelet.unprepare(ref) for ref in refs))
    assert len(driver.prepared) == len(driver.unprepared) == 8
    assert driver.most_under_way == 1


async def test_calls_may_run_together_if_the_driver_says_so(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    first, second = await allocate(server, "a"), await allocate(server, "b")
    driver.go.clear()
    async with new_plugin(serialize=False):
        await kubelet.register_all()
        both = asyncio.gather(kubelet.prepare(first), kubelet.prepare(second))
        async with asyncio.timeout(5):
            while driver.most_under_way < 2:
                await asyncio.sleep(0.01)
        driver.go.set()
        await both


async def test_a_call_that_waits_too_long_for_another_says_so(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    first, second = await allocate(server, "a"), await allocate(server, "b")
    driver.go.clear()
    async with new_plugin(lock_timeout_s=0.2):
        await kubelet.register_all()
        slow = asyncio.create_task(kubelet.prepare(first))
        await driver.entered.wait()
        assert "for too long" in (await kubelet.prepare(second))[second.uid].error
        driver.go.set()
        assert not (await slow)[first.uid].error


async def test_a_prepare_runs_to_its_end_when_kubelet_gives_up_and_the_retry_waits_for_it(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    driver.go.clear()
    async with new_plugin():
        await kubelet.register_all()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await kubelet.prepare(ref, timeout_s=1.5)
        assert caught.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
        retry = asyncio.create_task(kubelet.prepare(ref))
        await asyncio.sleep(0.2)
        assert driver.under_way == 1
        driver.go.set()
        assert not (await retry)[ref.uid].error
    assert len(driver.prepared) == 2


async def test_a_claim_named_twice_is_prepared_once(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver
) -> None:
    ref = await allocate(server, "c")
    async with new_plugin():
        await kubelet.register_all()
        await kubelet.prepare(ref, ref)
    assert len(driver.prepared) == 1


async def test_each_call_has_an_id_and_is_logged_whole_when_debugging(
    server: FakeApiServer,
    kubelet: FakeKubelet,
    new_plugin: NewPlugin,
    driver: ScriptedDriver,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ids: list[str] = []

    def devices(claim: Claim) -> list[PreparedDevice]:
        ids.append(request_id.get())
        return [PreparedDevice("p", "the-device")]

    driver.devices = devices
    ref = await allocate(server, "c")
    with caplog.at_level(logging.DEBUG, logger="dra_kubeletplugin"):
        async with new_plugin():
            await kubelet.register_all()
            await kubelet.prepare(ref)
            await kubelet.prepare(ref)
    assert ids[0]
    assert ids[0] != ids[1]
    lines = [record.getMessage() for record in caplog.records if f"call {ids[0]}:" in record.getMessage()]
    assert ref.uid in lines[0]
    assert "the-device" in lines[1]


async def test_calls_are_reported_with_how_many_failed(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin
) -> None:
    reports: list[CallReport] = []
    ref = await allocate(server, "c")
    async with new_plugin(observe=reports.append):
        await kubelet.register_all()
        await kubelet.prepare(ref, ClaimRef("jobs", "none", "u-1"))
        await kubelet.prepare()
    (report,) = reports
    assert (report.method, report.claims, report.failed) == ("NodePrepareResources", 2, 1)
    assert 0 < report.seconds < 10


async def test_containers_get_a_description_of_their_devices(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver, folder: Path
) -> None:
    ref = await allocate(server, "c", result("gpu-0", request="gpu/large"), result("gpu-1", request="gpu/large"))
    driver.devices = lambda claim: [
        PreparedDevice.of(found, metadata={"model": {"string": found.device}}) for found in claim.results
    ]
    async with new_plugin(metadata=True):
        await kubelet.register_all()
        first, second = (await kubelet.prepare(ref))[ref.uid].devices
        assert list(first.cdi_device_ids) == [f"gpu.example.com/metadata={ref.uid}_gpu"]
        assert not second.cdi_device_ids
        (spec,) = [json.loads(path.read_text()) for path in (folder / "cdi").iterdir()]
        (mount,) = spec["devices"][0]["containerEdits"]["mounts"]
        inside = "/var/run/kubernetes.io/dra-device-attributes/resourceclaims/c/gpu/gpu.example.com-metadata.json"
        assert mount["containerPath"] == inside
        newest, oldest = [json.loads(line) for line in Path(mount["hostPath"]).read_text().splitlines()]
        assert (newest["apiVersion"], oldest["apiVersion"]) == (
            "metadata.resource.k8s.io/v1beta1",
            "metadata.resource.k8s.io/v1alpha1",
        )
        (request,) = newest["requests"]
        assert request["name"] == "gpu/large"
        assert [device["attributes"] for device in request["devices"]] == [
            {"model": {"string": "gpu-0"}},
            {"model": {"string": "gpu-1"}},
        ]
        assert not (await kubelet.unprepare(ref))[ref.uid].error
        assert not list((folder / "cdi").iterdir())
        assert not Path(mount["hostPath"]).exists()


async def test_a_claim_from_a_template_is_described_under_the_name_that_the_pod_has_for_it(
    server: FakeApiServer, kubelet: FakeKubelet, new_plugin: NewPlugin, driver: ScriptedDriver, folder: Path
) -> None:
    ref = await allocate(server, "pod-x-gpus-7f2")
    raw = server.one(CLAIMS, ref.name, namespace="jobs")
    assert raw
    annotated = raw["metadata"] | {"annotations": {"resource.kubernetes.io/pod-claim-name": "gpus"}}
    await server.put(CLAIMS, raw | {"metadata": annotated})
    driver.devices = lambda claim: [PreparedDevice("p", "d", metadata={})]  # for all requests
    async with new_plugin(metadata=True):
        await kubelet.register_all()
        await kubelet.prepare(ref)
    (spec,) = [json.loads(path.read_text()) for path in (folder / "cdi").iterdir()]
    path = spec["devices"][0]["containerEdits"]["mounts"][0]["containerPath"]
    assert path.endswith("/resourceclaimtemplates/gpus/gpu/gpu.example.com-metadata.json")
