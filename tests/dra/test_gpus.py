from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dra_samples import gpu
from timeslice_driver.dra.device_names import DeviceName, parse
from timeslice_driver.dra.gpus import GONE, describe, numbered, pcie_root, semantic, without_driver
from timeslice_driver.inventory import Device, Traits


def test_a_gpu_keeps_its_number_when_the_kernel_numbers_the_device_files_anew() -> None:
    before = numbered([gpu(0, uuid="GPU-a"), gpu(1, uuid="GPU-b")], (), needed=())
    after = numbered([gpu(0, uuid="GPU-b"), gpu(1, uuid="GPU-a")], before, needed=())
    assert [(each.number, each.uuid, each.minor) for each in after] == [(0, "GPU-a", 1), (1, "GPU-b", 0)]


def test_a_gpu_that_is_gone_stays_with_its_fault_while_it_is_needed() -> None:
    before = (gpu(0, uuid="GPU-a"), gpu(1, uuid="GPU-b"))
    kept = numbered([gpu(1, uuid="GPU-b")], before, needed={"GPU-a"})
    assert [(each.uuid, each.fault, each.minor) for each in kept] == [("GPU-a", GONE, -1), ("GPU-b", "", 1)]
    assert [each.uuid for each in numbered([gpu(1, uuid="GPU-b")], before, needed=())] == ["GPU-b"]


def test_a_new_gpu_takes_its_minor_as_number_unless_another_has_it() -> None:
    before = (gpu(0, uuid="GPU-a"), gpu(1, uuid="GPU-b"))
    now = [gpu(0, uuid="GPU-b"), gpu(1, uuid="GPU-new"), gpu(2, uuid="GPU-third")]
    after = numbered(now, before, needed={"GPU-a"})
    assert {each.uuid: each.number for each in after} == {"GPU-a": 0, "GPU-b": 1, "GPU-third": 2, "GPU-new": 3}


def test_a_replaced_gpu_s_number_is_free_for_its_successor() -> None:
    assert numbered([gpu(0, uuid="GPU-new")], (gpu(0, uuid="GPU-old"),), needed=())[0].number == 0


def test_without_a_driver_all_known_gpus_are_offered_to_nobody() -> None:
    (known,) = without_driver((gpu(0),), "the driver does not answer")
    assert known == replace(gpu(0), fault="the driver does not answer")


@pytest.mark.parametrize(
    ("version", "expected"),
    [("570.86", "570.86.0"), ("550.54.04", "550.54.4"), ("570.86.10", "570.86.10"), ("", "0.0.0"), ("x.1", "0.0.0")],
)
def test_a_driver_version_becomes_one_that_cel_can_compare(version: str, expected: str) -> None:
    assert semantic(version) == expected


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    place = tmp_path / "devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0"
    place.mkdir(parents=True)
    (place / "numa_node").write_text("1\n")
    links = tmp_path / "bus/pci/devices"
    links.mkdir(parents=True)
    (links / "0000:3b:00.0").symlink_to(place)
    return tmp_path


TRAITS = Traits("0000:3b:00.0", "Hopper", (9, 0), numa_node=4)


def test_a_gpu_is_described_from_nvml_and_sysfs(sysfs: Path) -> None:
    device = Device("GPU-a", "NVIDIA H100", minor=3, memory_bytes=80)
    described = describe(device, TRAITS, driver_version="570.86", sysfs=sysfs)
    assert (described.number, described.minor, described.compute_capability) == (3, 3, "9.0.0")
    assert (described.pcie_root, described.numa_node, described.fault) == ("pci0000:3a", 1, "")


def test_what_sysfs_does_not_know_nvml_may_and_the_rest_is_empty(tmp_path: Path) -> None:
    device = Device("GPU-a", "NVIDIA H100", minor=3, memory_bytes=80)
    described = describe(device, TRAITS, driver_version="570.86", sysfs=tmp_path)
    assert (described.pcie_root, described.numa_node) == ("", 4)
    assert describe(device, Traits(), driver_version="570.86", sysfs=tmp_path).numa_node == -1
    assert pcie_root(tmp_path) == ""


def test_a_device_in_mig_mode_is_offered_to_nobody(sysfs: Path) -> None:
    device = Device("GPU-a", "NVIDIA H100", minor=3, memory_bytes=80, mig=True)
    assert "MIG" in describe(device, TRAITS, driver_version="570.86", sysfs=sysfs).fault


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gpu-0-rl-a", DeviceName(0, group="rl-a")),
        ("gpu-12-slot-3", DeviceName(12, slot=3)),
        ("gpu-0-slot-x", DeviceName(0, group="slot-x")),
        ("gpu-0-7", DeviceName(0, group="7")),
    ],
)
def test_a_device_s_name_has_its_gpu_and_its_group_or_slot(name: str, parts: DeviceName) -> None:
    assert parse(name) == parts
    assert str(parts) == name


@pytest.mark.parametrize("name", ["gpu-0", "gpu-x-rl", "mig-0-rl", "gpu-0-", "gpu-0-RL"])
def test_other_names_are_not_ours(name: str) -> None:
    assert parse(name) is None
