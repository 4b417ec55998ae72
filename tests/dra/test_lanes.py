from __future__ import annotations

import re
from typing import Any

import pytest
from dra_samples import GIB, gpu, group, record
from first_fit import FirstFit
from timeslice_api.kinds import bytes_of
from timeslice_driver.dra.content import Content
from timeslice_driver.dra.lanes import lanes
from timeslice_driver.dra.offers import Offer, offers
from timeslice_driver.dra.slots import slots

TWO = (gpu(0), gpu(1))
RL = (group("rl-a", jobs=["job-a", "job-b"]), group("rl-b", jobs=["job-a", "job-b"]))


def published(*groups: Any, gpus: Any = TWO, host_memory: int = 320 * GIB, held: Any = ()) -> Content:
    return lanes(gpus, offers(groups, {}, held), host_memory=host_memory)


def by_name(content: Content) -> dict[str, Any]:
    return {device["name"]: device for device in content.devices}


def test_there_is_a_lane_for_each_gpu_and_group_in_the_order_of_gpus() -> None:
    names = [device["name"] for device in published(*RL).devices]
    assert names == ["gpu-0-rl-a", "gpu-0-rl-b", "gpu-1-rl-a", "gpu-1-rl-b"]


def test_every_lane_of_a_gpu_takes_its_one_unit_of_the_lane_counter() -> None:
    content = published(*RL)
    assert content.counter_sets[1] == {"name": "gpu-1", "counters": {"lane": {"value": "1"}}}
    for device in content.devices:
        number = device["name"].split("-")[1]
        assert device["consumesCounters"] == [{"counterSet": f"gpu-{number}", "counters": {"lane": {"value": "1"}}}]
        assert device["allowMultipleAllocations"] is True


def test_a_lane_has_a_policy_for_each_capacity_since_one_without_is_consumed_whole() -> None:
    assert by_name(published(*RL))["gpu-0-rl-a"]["capacity"] == {
        "seats": {"value": "2", "requestPolicy": {"default": "1", "validValues": ["1"]}},
        "hostMemory": {
            "value": "160Gi",
            "requestPolicy": {"default": "80Gi", "validRange": {"min": "1Mi", "step": "1Mi"}},
        },
        "job_job_a": {"value": "1", "requestPolicy": {"default": "0", "validValues": ["0", "1"]}},
        "job_job_b": {"value": "1", "requestPolicy": {"default": "0", "validValues": ["0", "1"]}},
    }


@pytest.mark.parametrize("mode", ["lanes", "slots"])
def test_all_attributes_are_on_all_devices_in_both_modes_for_selectors_fail_on_a_missing_one(mode: str) -> None:
    publish = {"lanes": lanes, "slots": slots}[mode]
    blank = gpu(0, memory=0)
    for device in publish((blank, gpu(1)), offers(RL, {}, ()), host_memory=320 * GIB).devices:
        assert {name: next(iter(value)) for name, value in device["attributes"].items()} == {
            "uuid": "string", "index": "int", "group": "string", "slot": "int", "mode": "string",
            "productName": "string",
            "architecture": "string", "computeCapability": "version", "driverVersion": "version", "memoryBytes": "int",
            "resource.kubernetes.io/pciBusID": "string", "resource.kubernetes.io/pcieRoot": "string",
            "resource.kubernetes.io/numaNode": "int",
        }  # fmt: skip
        assert device["attributes"]["mode"] == {"string": mode}


def test_the_table_of_who_gets_what_on_two_gpus() -> None:
    scheduler = FirstFit(published(*RL))
    assert scheduler.allocate("a1", "rl-a", job_job_a="1") == ["gpu-0-rl-a"]
    assert scheduler.allocate("b1", "rl-a", job_job_b="1") == ["gpu-0-rl-a"]
    assert scheduler.allocate("a2", "rl-a", job_job_a="1") == ["gpu-1-rl-a"]
    assert scheduler.allocate("x1", "rl-b", job_job_a="1") is None
    scheduler.release("a2")
    assert scheduler.allocate("x1", "rl-b", job_job_a="1") == ["gpu-1-rl-b"]


def test_claims_of_two_gpus_get_two_and_partner_jobs_meet_on_them() -> None:
    scheduler = FirstFit(published(*RL))
    assert scheduler.allocate("m1", "rl-a", count=2, job_job_a="1") == ["gpu-0-rl-a", "gpu-1-rl-a"]
    assert scheduler.allocate("m2", "rl-a", count=2, job_job_b="1") == ["gpu-0-rl-a", "gpu-1-rl-a"]
    assert scheduler.allocate("m3", "rl-a", job_job_b="1") is None


def test_snapshots_always_fit_into_host_memory() -> None:
    scheduler = FirstFit(published(group("rl-a", seats=3, jobs=["a", "b", "c"])))
    assert scheduler.allocate("h1", "rl-a", job_a="1", hostMemory="100Gi") == ["gpu-0-rl-a"]
    assert scheduler.allocate("h2", "rl-a", job_b="1") == ["gpu-1-rl-a"], "100 + 80 > 160"
    assert scheduler.allocate("h3", "rl-a", job_c="1", hostMemory="60Gi") == ["gpu-0-rl-a"], "it fits exactly"


def test_a_group_s_own_figure_for_host_memory_counts_up_to_the_node_s_share() -> None:
    def share(figure: str) -> str:
        capacity = published(group("rl-a", hostMemoryPerGPU=figure)).devices[0]["capacity"]["hostMemory"]
        return str(capacity["value"])

    assert share("100Gi") == "100Gi"
    assert share("900Gi") == "160Gi"


def test_a_node_with_too_little_memory_gives_a_default_that_fits_its_share() -> None:
    capacity = published(RL[0], host_memory=100 * GIB + 12345).devices[0]["capacity"]["hostMemory"]
    assert capacity["value"] == "50Gi"
    assert capacity["requestPolicy"]["default"] == "50Gi"


def test_jobs_of_an_open_group_get_their_capacity_when_the_orchestrator_has_seen_them() -> None:
    lane = published(group("rl-a", status_jobs=["Job.X_1"])).devices[0]
    assert "job_Job_X_1" in lane["capacity"]


def test_a_device_never_has_more_entries_than_the_api_allows_and_prepared_jobs_keep_theirs() -> None:
    crowd = group("rl-a", status_jobs=[f"job-{number}" for number in range(40)])
    content = published(crowd, held=[record("u", "GPU-0", job="job-33")])
    lane = content.devices[0]
    assert len(lane["attributes"]) + len(lane["capacity"]) == 32
    assert "job_job_33" in lane["capacity"]
    assert content.left_out
    assert len(content.left_out["rl-a"]) == 40 - 17


def test_a_long_job_name_is_shortened_to_what_a_capacity_may_be_called() -> None:
    job = "trainer.with-a-very-long-name.of-the-second-cluster"
    keys = [key for key in published(group(jobs=[job])).devices[0]["capacity"] if key.startswith("job_")]
    assert len(keys) == 1
    assert re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,31}", keys[0])


def test_groups_are_offered_where_their_node_selector_says() -> None:
    picky = group("rl-b", nodeSelector={"pool": "h100"})
    assert [offer.group for offer in offers([RL[0], picky], {"pool": "a100"}, ())] == ["rl-a"]
    assert [offer.group for offer in offers([RL[0], picky], {"pool": "h100"}, ())] == ["rl-a", "rl-b"]


def test_a_group_that_is_being_deleted_keeps_its_lanes_closed() -> None:
    content = published(group("rl-a", jobs=["a"], deleted="2026-01-01T00:00:00Z"))
    assert [device["taints"] for device in content.devices] == [
        [{"key": "timeslice.dev/draining", "effect": "NoSchedule"}]
    ] * 2
    assert FirstFit(content).allocate("a1", "rl-a", job_a="1") is None


def test_a_group_that_vanished_stays_closed_on_the_gpus_where_it_has_claims() -> None:
    content = published(RL[1], held=[record("u", "GPU-1", job="job-a", group="rl-a")])
    devices = by_name(content)
    assert set(devices) == {"gpu-0-rl-b", "gpu-1-rl-a", "gpu-1-rl-b"}
    assert devices["gpu-1-rl-a"]["taints"][0]["key"] == "timeslice.dev/draining"
    assert "job_job_a" in devices["gpu-1-rl-a"]["capacity"]


def test_a_sick_gpu_is_closed_and_never_taken_away() -> None:
    content = published(RL[0], gpus=(gpu(0, fault="GPU is lost"), gpu(1)))
    devices = by_name(content)
    assert devices["gpu-0-rl-a"]["taints"] == [{"key": "timeslice.dev/unhealthy", "effect": "NoSchedule"}]
    assert "taints" not in devices["gpu-1-rl-a"]


def test_a_node_without_gpus_or_groups_has_an_empty_pool() -> None:
    assert published(*RL, gpus=()) == Content((), (), {})
    assert published().devices == ()


def test_the_most_seats_that_a_group_may_have_are_published() -> None:
    assert published(group("rl-a", seats=16)).devices[0]["capacity"]["seats"]["value"] == "16"


class TestSlots:
    def test_first_slots_of_all_gpus_come_before_second_ones_so_that_a_claim_of_two_gets_two_gpus(self) -> None:
        names = [device["name"] for device in slots(TWO, offers(RL, {}, ()), host_memory=320 * GIB).devices]
        assert names == ["gpu-0-slot-0", "gpu-1-slot-0", "gpu-0-slot-1", "gpu-1-slot-1"]

    def test_slots_use_nothing_that_an_old_server_would_drop(self) -> None:
        content = slots(TWO, offers(RL, {}, ()), host_memory=320 * GIB)
        assert content.counter_sets == ()
        for device in content.devices:
            assert set(device) == {"name", "attributes", "capacity"}
            assert all(set(capacity) == {"value"} for capacity in device["capacity"].values())

    def test_there_are_as_many_slots_as_the_largest_group_has_seats(self) -> None:
        wide = (Offer("rl-a"), Offer("rl-b", seats=4))
        assert len(slots((gpu(0),), wide, host_memory=320 * GIB).devices) == 4

    def test_there_are_no_more_slots_than_snapshots_fit_but_always_one(self) -> None:
        assert len(slots((gpu(0),), (Offer("rl-a", seats=4),), host_memory=200 * GIB).devices) == 2
        assert len(slots((gpu(0),), (Offer("rl-a", seats=4),), host_memory=GIB).devices) == 1

    def test_the_slots_of_a_gpu_share_its_host_memory(self) -> None:
        first = slots((gpu(0),), (Offer("rl-a"),), host_memory=320 * GIB).devices[0]
        assert bytes_of(first["capacity"]["hostMemory"]["value"], "") == 160 * GIB

    def test_a_sick_gpu_s_slots_are_closed(self) -> None:
        assert slots((gpu(0, fault="lost"),), (), host_memory=GIB).devices[0]["taints"]
