from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from dra_kubeletplugin.apiserver import CLAIMS, PODS, SLICES
from dra_samples import DRIVER, NODE
from fake_api_server import Refusal
from gpu_emulator.faults import Fault
from plugin_world import PluginWorld
from timeslice_driver.dra.cluster import GROUPS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]


async def test_lanes_of_all_groups_are_published_with_what_nvml_tells(world: PluginWorld) -> None:
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    lane = world.devices()["gpu-1-rl-b"]
    uuids = [device["uuid"] for device in world.emulator.snapshot()["devices"]]
    attributes = lane["attributes"]
    assert attributes["uuid"] == {"string": uuids[1]}
    assert attributes["architecture"] == {"string": "Hopper"}
    assert attributes["computeCapability"] == {"version": "9.0.0"}
    assert attributes["driverVersion"] == {"version": "570.86.0"}
    assert attributes["memoryBytes"] == {"int": 64 << 20}
    assert attributes["resource.kubernetes.io/pciBusID"] == {"string": "0000:02:00.0"}
    assert lane["capacity"]["hostMemory"]["value"] == "512Mi"
    assert {"job_trainer", "job_evaluator"} < set(lane["capacity"])


async def test_metrics_tell_how_many_slices_and_devices_the_node_publishes(world: PluginWorld) -> None:
    plugin = await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    read = plugin.metrics.registry.get_sample_value
    await world.until(lambda: read("timeslice_resource_slices_published") == len(world.server.all(SLICES)))
    assert read("timeslice_devices_published", {"mode": "lanes"}) == 4


async def test_a_new_group_s_lanes_are_published_within_a_second(world: PluginWorld) -> None:
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    began = time.monotonic()
    await world.add_group("rl-c")
    await world.until(lambda: len(world.devices()) == 6)
    assert time.monotonic() - began < 1.0


async def test_a_group_deleted_while_it_is_used_is_closed_and_goes_with_its_last_claim(world: PluginWorld) -> None:
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    uid = await world.add_claim()
    assert not (await world.prepare(uid)).error
    await world.server.remove(GROUPS, "rl-a")
    await world.until(lambda: set(world.devices()) == {"gpu-0-rl-a", "gpu-0-rl-b", "gpu-1-rl-b"})
    assert world.devices()["gpu-0-rl-a"]["taints"][0]["key"] == "timeslice.dev/draining"
    assert await world.unprepare(uid) == ""
    await world.until(lambda: "gpu-0-rl-a" not in world.devices())


async def test_a_claim_is_prepared_over_the_kubelet_s_socket_and_unprepared(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim("c", "gpu-0-rl-a", "gpu-1-rl-a")
    answer = await world.prepare(uid)
    assert answer.error == ""
    assert [(each.pool_name, each.device_name, each.share_id) for each in answer.devices] == [
        (NODE, "gpu-0-rl-a", "-gpu-0-rl-a"),
        (NODE, "gpu-1-rl-a", "-gpu-1-rl-a"),
    ]
    content = json.loads((world.folder / "cdi" / f"timeslice.dev-claim_{uid}.json").read_text())
    ids = [each.split("=")[1] for device in answer.devices for each in device.cdi_device_ids]
    assert ids == [device["name"] for device in content["devices"]]
    assert "TIMESLICE_JOB_ID=trainer" in content["containerEdits"]["env"]
    assert (world.folder / "claims" / uid).is_dir()
    claim = world.parts.claims[uid]
    assert (claim.job_id, claim.group_id, len(claim.device_ids)) == ("trainer", "rl-a", 2)
    assert await world.unprepare(uid) == ""
    assert not (world.folder / "claims" / uid).exists()
    assert world.parts.claims == {}
    assert list((world.folder / "cdi").iterdir()) == []


async def test_pods_that_come_to_share_a_claim_are_added_though_the_kubelet_calls_for_the_first_alone(
    world: PluginWorld,
) -> None:
    plugin = await world.start()
    uid = await world.add_claim()
    await world.prepare(uid)
    await world.until(lambda: plugin.metrics.registry.get_sample_value("timeslice_claims_prepared") == 1)
    raw = world.server.one(CLAIMS, "c", namespace="rl")
    assert raw
    second = {"resource": "pods", "name": "second", "uid": "uid-2"}
    status = {**raw["status"], "reservedFor": [*raw["status"]["reservedFor"], second]}
    await world.server.put(CLAIMS, {**raw, "status": status})
    await world.until(lambda: "uid-2" in world.parts.claims[uid].pods)
    assert len(world.records().claims[uid].pods) == 2


async def test_a_claim_of_one_pod_alone_is_not_watched(world: PluginWorld) -> None:
    plugin = await world.start()
    uid = await world.add_claim(owner="pod-of-c")
    await world.prepare(uid)
    await world.until(lambda: plugin.metrics.registry.get_sample_value("timeslice_claims_prepared") == 1)
    assert not any(call.is_watch and call.place.plural == "resourceclaims" for call in world.server.calls)


async def test_a_refusal_reaches_the_kubelet_the_claim_the_pod_and_the_metrics_in_the_same_words(
    world: PluginWorld,
) -> None:
    plugin = await world.start()
    first = await world.add_claim("c")
    await world.prepare(first)
    second = await world.add_claim("d", "gpu-0-rl-b")
    error = (await world.prepare(second, "d")).error
    assert "GroupConflict: gpu-0 (GPU-" in error
    assert "is in group rl-a through claim rl/c, so group rl-b cannot have it" in error
    await plugin.reports.flush()
    text = error.partition("GroupConflict: ")[2]
    claim = world.server.one(CLAIMS, "d", namespace="rl")
    assert claim
    (condition,) = claim["status"]["devices"][0]["conditions"]
    assert (condition["status"], condition["reason"], condition["message"]) == ("False", "GroupConflict", text)
    assert [text in note for note in world.events()["GroupConflict"]] == [True, True]
    count = plugin.metrics.registry.get_sample_value
    assert count("timeslice_claim_refusals_total", {"reason": "GroupConflict"}) == 1
    assert count("timeslice_claim_prepare_seconds_count") == 1


async def test_a_pod_s_memory_limit_below_its_snapshot_is_refused(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim("c", memory_limit="1000Ki")
    assert "PodMemory: container train of pod pod-of-c may take 1000.0 KiB" in (await world.prepare(uid)).error


async def test_a_claim_of_other_drivers_alone_is_nothing_to_do(world: PluginWorld) -> None:
    await world.start()
    raw = {"metadata": {"name": "c", "namespace": "rl"}, "status": {"allocation": {"devices": {"results": [
        {"driver": "nic.example.com", "request": "r", "pool": "p", "device": "d"}]}}}}  # fmt: skip
    uid = (await world.server.put(CLAIMS, raw))["metadata"]["uid"]
    answer = await world.prepare(uid)
    assert (answer.error, list(answer.devices)) == ("", [])


async def test_pods_that_may_not_be_read_do_not_keep_a_claim(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim()
    world.server.refuse("GET", "pods", Refusal(403, "Forbidden"))
    assert not (await world.prepare(uid)).error


async def test_an_api_server_that_does_not_answer_for_the_pod_is_told_and_tried_again(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim()
    world.server.refuse("GET", "pods", Refusal(500, "InternalError"))
    assert "cannot read pod rl/pod-of-c of the claim" in (await world.prepare(uid)).error
    assert not (await world.prepare(uid)).error


async def test_without_an_nvidia_driver_it_starts_unprepares_and_offers_nothing_new(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim()
    await world.prepare(uid)
    await world.until(lambda: len(world.devices()) == 4)
    await world.stop()
    await world.start(libnvml="/nowhere/libnvidia-ml.so.1")
    assert set(world.parts.claims) == {uid}
    await world.until(lambda: all("taints" in device for device in world.devices().values()))
    assert len(world.devices()) == 4
    assert await world.unprepare(uid) == ""
    other = await world.add_claim("d", "gpu-1-rl-a")
    assert "DeviceUnhealthy" in (await world.prepare(other, "d")).error


async def test_without_any_gpu_ever_seen_an_empty_pool_is_published(world: PluginWorld) -> None:
    await world.start(libnvml="/nowhere/libnvidia-ml.so.1")
    await world.until(lambda: len(world.server.all(SLICES)) == 1)
    assert world.devices() == {}


async def test_a_gpu_that_falls_off_the_bus_is_closed_and_open_again_when_it_is_back(world: PluginWorld) -> None:
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    world.emulator.inject(Fault("nvmlDeviceGetUUID", rc=15))
    await world.until(lambda: all("taints" in device for device in world.devices().values()))
    assert len(world.devices()) == 4
    world.emulator.clear_faults()
    await world.until(lambda: not any("taints" in device for device in world.devices().values()))


async def test_a_driver_that_stops_answering_closes_all_gpus_until_it_answers_again(world: PluginWorld) -> None:
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    world.emulator.inject(Fault("nvmlDeviceGetCount", rc=999))
    await world.until(lambda: all("taints" in device for device in world.devices().values()))
    world.emulator.clear_faults()
    await world.until(lambda: not any("taints" in device for device in world.devices().values()))


@pytest.mark.parametrize("options", [{"gpus": 2, "memory": 64 << 20}])
async def test_a_gpu_that_does_not_say_at_first_what_it_is_is_asked_again(world: PluginWorld) -> None:
    world.emulator.inject(Fault("nvmlDeviceGetPciInfo", rc=15, nth=1))
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    await world.until(lambda: not any("taints" in device for device in world.devices().values()))
    assert world.devices()["gpu-0-rl-a"]["attributes"]["architecture"] == {"string": "Hopper"}


async def test_a_claim_deleted_while_the_plugin_was_down_is_unprepared_at_the_next_start(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim()
    await world.prepare(uid)
    await world.stop()
    await world.server.remove(CLAIMS, "c", namespace="rl")
    await world.start()
    await world.until(lambda: not world.records().held)
    assert world.parts.claims == {}
    assert list((world.folder / "cdi").iterdir()) == []


async def test_in_a_rolling_update_either_instance_may_get_any_call(world: PluginWorld) -> None:
    await world.start(pod_uid="old")
    old_parts = world.parts
    await world.start(pod_uid="new")
    uid, other = await world.add_claim(), await world.add_claim("d", "gpu-0-rl-b")
    world.instance = "old"
    first = await world.prepare(uid)
    assert first.error == ""
    world.instance = "new"
    assert await world.prepare(uid) == first
    assert "GroupConflict" in (await world.prepare(other, "d")).error
    assert set(world.parts.claims) == set(old_parts.claims) == {uid}
    assert await world.unprepare(uid) == ""
    world.instance = "old"
    assert not (await world.prepare(other, "d")).error
    world.instance = "new"
    assert await world.unprepare(other, "d") == ""
    assert world.records().held == ()
    assert list((world.folder / "cdi").iterdir()) == []


async def test_after_a_reboot_the_kubelet_s_call_prepares_again(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim()
    first = await world.prepare(uid)
    await world.stop()
    for path in (world.folder / "cdi").iterdir():
        path.unlink()
    (world.folder / "boot_id").write_text("boot-2\n")
    await world.start()
    assert world.parts.claims == {}
    assert await world.prepare(uid) == first
    assert set(world.parts.claims) == {uid}


async def test_a_spoilt_checkpoint_is_made_anew_from_slices_claims_and_cdi_specs(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim()
    first = await world.prepare(uid)
    await world.until(lambda: len(world.devices()) == 4)
    before = world.records()
    await world.stop()
    (world.config.state_dir / "claims.json").write_text("spoilt")
    await world.start()
    await world.until(lambda: not world.records().incomplete)
    after = world.records()
    assert after.claims[uid] == replace(before.claims[uid], changed_at=after.claims[uid].changed_at)
    await world.until(lambda: set(world.parts.claims) == {uid})
    assert await world.prepare(uid) == first


async def test_records_lost_while_it_runs_end_the_process_whose_next_start_finds_them(world: PluginWorld) -> None:
    plugin = await world.start()
    uid = await world.add_claim()
    await world.prepare(uid)
    (world.config.state_dir / "claims.json").write_text("spoilt")
    await world.until(plugin.fatal.done)
    await world.stop()
    await world.start()
    await world.until(lambda: set(world.parts.claims) == {uid})


async def test_slices_stay_as_they_are_until_the_groups_have_been_heard(world: PluginWorld) -> None:
    await world.start()
    await world.until(lambda: len(world.devices()) == 4)
    await world.stop()
    await world.server.put(SLICES, {"metadata": {"name": "of-another"}, "spec": {"driver": "x", "nodeName": NODE}})
    world.server.refuse("GET", "timeslicegroups", Refusal(500, "InternalError"), times=2)
    await world.start()
    uid = await world.add_claim()
    assert not (await world.prepare(uid)).error, "the claim's allocation is enough"
    assert len(world.devices()) == 4


async def test_a_server_without_the_features_gets_slots(world: PluginWorld) -> None:
    def drop(call: Any) -> None:
        """As an API server does with its gates off."""
        if call.place.plural == "resourceslices" and call.method in {"POST", "PUT"}:
            call.body["spec"].pop("sharedCounters", None)
            for device in call.body["spec"].get("devices") or ():
                device.pop("consumesCounters", None)
                device.pop("allowMultipleAllocations", None)
                for capacity in device["capacity"].values():
                    capacity.pop("requestPolicy", None)

    world.server.hooks.append(drop)
    await world.start()
    await world.until(lambda: set(world.devices()) == {f"gpu-{gpu}-slot-{slot}" for gpu in (0, 1) for slot in (0, 1)})
    config = [{"source": "FromClass", "opaque": {"driver": DRIVER, "parameters": {
        "apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig", "group": "rl-a"}}}]  # fmt: skip
    uid = await world.add_claim("c", "gpu-0-slot-0", shared=False, config=config)
    assert not (await world.prepare(uid)).error
    other = await world.add_claim("d", "gpu-0-slot-1", shared=False, config=config)
    assert "SameJobTwice" in (await world.prepare(other, "d")).error


async def test_an_old_server_gets_slots_without_a_try(world: PluginWorld) -> None:
    world.server.version = "v1.36.2"
    plugin = await world.start()
    await world.until(lambda: "gpu-0-slot-0" in world.devices())
    assert plugin.publication.last
    assert "this is 1.36.2" in plugin.publication.last.choice.why
    assert not any("allowMultipleAllocations" in json.dumps(call.body) for call in world.server.calls)


async def test_the_plugin_answers_on_its_own_sockets(world: PluginWorld) -> None:
    plugin = await world.start()
    await plugin.check()
    assert not plugin.fatal.done()


async def test_a_pod_that_was_replaced_under_its_name_lends_no_label(world: PluginWorld) -> None:
    await world.start()
    uid = await world.add_claim("c", job="")
    await world.server.remove(PODS, "pod-of-c", namespace="rl")
    labels = {"timeslice.dev/job": "impostor"}
    await world.server.put(PODS, {"metadata": {"name": "pod-of-c", "namespace": "rl", "labels": labels}})
    assert "JobUnknown" in (await world.prepare(uid)).error
