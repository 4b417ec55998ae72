from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from gpu_emulator.emulator import Emulator
from gpu_emulator.faults import Fault
from gpu_emulator.puppet import Puppet
from node_world import MIB, NAMES, World, failing
from timeslice_api.errors import Unavailable
from timeslice_driver.discovery import Discovery, Scope, ScrambledListError
from timeslice_driver.inventory import Device, DeviceProcess, Inventory, InventoryError, Nvml, Traits
from timeslice_driver.parts import Member
from timeslice_driver.pods import Pods
from timeslice_driver.processes import ProcFs

pytestmark = [pytest.mark.processes, pytest.mark.timeout(40)]

Jobs = Callable[..., Puppet]


@pytest_asyncio.fixture
async def inventory(emulator: Emulator) -> AsyncIterator[Inventory]:
    made = Inventory(Nvml(str(emulator.libraries / "libnvidia-ml.so.1")), timeout_s=2.0)
    await made.open()
    yield made
    await made.close()


@pytest.mark.parametrize("options", [{"gpus": 2, "memory": 64 * MIB}])
async def test_devices_are_told_with_memory_and_modes(inventory: Inventory, emulator: Emulator) -> None:
    emulator.set_device(1, mig=True, persistence=False)
    first, second = await inventory.devices()
    uuids = [device["uuid"] for device in emulator.snapshot()["devices"]]
    assert [first.device_id, second.device_id] == uuids
    assert (first.minor, second.minor) == (0, 1)
    assert first.memory_bytes == 64 * MIB
    assert (first.mig, first.persistent, second.mig, second.persistent) == (False, True, True, False)
    assert await inventory.driver_version() == "570.86"


@pytest.mark.parametrize("options", [{"gpus": 2, "memory": 64 * MIB}])
async def test_traits_are_told_as_schedulers_and_sysfs_spell_them(inventory: Inventory) -> None:
    _, second = await inventory.devices()
    traits = await inventory.traits(second.device_id)
    assert traits == Traits(bus_id="0000:02:00.0", architecture="Hopper", compute_capability=(9, 0), numa_node=0)


@pytest.mark.parametrize("options", [{"gpus": 1, "memory": 64 * MIB}])
async def test_a_trait_that_the_driver_cannot_tell_is_left_empty(inventory: Inventory, emulator: Emulator) -> None:
    for function in ("nvmlDeviceGetArchitecture", "nvmlDeviceGetCudaComputeCapability", "nvmlDeviceGetNumaNodeId"):
        emulator.inject(Fault(function, rc=3))
    (device,) = await inventory.devices()
    assert await inventory.traits(device.device_id) == Traits(bus_id="0000:01:00.0")


async def test_processes_are_told_with_what_they_use(inventory: Inventory, jobs: Jobs) -> None:
    job = jobs(4 * MIB)
    (entry,) = await inventory.processes()
    assert (entry.pid, entry.used_bytes, entry.instance) == (job.pid, 6 * MIB, None)
    memory = await inventory.memory(entry.device_id)
    assert (memory.used, memory.free) == (6 * MIB, 58 * MIB)


async def test_a_device_that_is_not_there_is_named(inventory: Inventory) -> None:
    with pytest.raises(InventoryError, match="no device GPU-x"):
        await inventory.memory("GPU-x")


async def test_an_unknown_error_has_the_library_started_anew_once(inventory: Inventory, emulator: Emulator) -> None:
    emulator.inject(Fault("nvmlDeviceGetCount", rc=999, nth=1))
    assert len(await inventory.devices()) == 1


async def test_an_error_that_stays_is_told_with_what_to_do(inventory: Inventory, emulator: Emulator) -> None:
    emulator.inject(Fault("nvmlDeviceGetCount", rc=999))
    with pytest.raises(InventoryError, match="Unknown") as error:
        await inventory.devices()
    assert "daemon-reload" in error.value.hint
    emulator.clear_faults()
    assert len(await inventory.devices()) == 1


async def test_an_error_that_no_restart_mends_is_told_at_once(inventory: Inventory, emulator: Emulator) -> None:
    emulator.inject(Fault("nvmlSystemGetDriverVersion", rc=18))
    with pytest.raises(InventoryError) as error:
        await inventory.driver_version()
    assert "reboot" in error.value.hint


async def test_a_lost_device_has_a_fault_and_does_not_hide_the_others(inventory: Inventory, emulator: Emulator) -> None:
    emulator.inject(Fault("nvmlDeviceGetUUID", rc=15))
    (lost,) = await inventory.devices()
    assert "GPU is lost" in lost.fault


async def test_a_call_that_hangs_is_given_up_and_the_next_gets_a_thread_of_its_own(emulator: Emulator) -> None:
    inventory = Inventory(Nvml(str(emulator.libraries / "libnvidia-ml.so.1")), timeout_s=0.3)
    await inventory.open()
    emulator.inject(Fault("nvmlSystemGetDriverVersion", delay_ms=3000, nth=1))
    began = time.monotonic()
    with pytest.raises(InventoryError, match="did not answer within") as error:
        await inventory.driver_version()
    assert time.monotonic() - began < 2.5
    assert "dmesg" in error.value.hint
    assert await inventory.driver_version() == "570.86"
    await inventory.close()


@pytest.mark.parametrize("library", ["/nowhere/libnvidia-ml.so", "/nowhere/\udcff.so"], ids=["absent", "no text"])
async def test_a_library_that_is_not_there_is_named(library: str) -> None:
    with pytest.raises(InventoryError, match=f"cannot load {re.escape(library)}"):
        Nvml(library).open()


class Listing:
    """NVML with a process list of a test's choice."""

    def __init__(self, *entries: DeviceProcess) -> None:
        self.entries = entries

    def processes(self) -> tuple[DeviceProcess, ...]:
        return self.entries


GPU = Device("GPU-0", "H100", minor=0, memory_bytes=1)


def scan(*entries: DeviceProcess, device: Device = GPU) -> Any:
    listing: Any = Listing(*entries)
    procfs = ProcFs()
    pods = Pods(procfs, Path("/nowhere"))
    discovery = Discovery(listing, procfs, pods, dev_root="/nowhere", own_pids=frozenset)
    scope = Scope(Member("a", "g"), ("GPU-0",), frozenset(), frozenset())
    return discovery.scan([scope], [device])


def test_a_list_of_processes_that_do_not_exist_is_not_believed() -> None:
    with pytest.raises(ScrambledListError, match="none of the listed processes exists"):
        scan(DeviceProcess(2**22 + 5, "GPU-0", 1), DeviceProcess(2**22 + 6, "GPU-0", 1))


def test_a_mig_instance_without_mig_is_not_believed() -> None:
    with pytest.raises(ScrambledListError, match="MIG is off"):
        scan(DeviceProcess(1, "GPU-0", 1, instance=3))


async def test_when_nvml_fails_a_park_is_refused_and_the_job_runs_on(
    world: World, emulator: Emulator, jobs: Jobs
) -> None:
    await world.start(look_interval_s=60)
    job = jobs(2 * MIB)
    await world.register("a", job.pid)
    emulator.inject(Fault("nvml", rc=999))
    with failing("InventoryUnavailable") as error:
        await world.park("a")
    assert error.value.retryable
    emulator.clear_faults()
    assert NAMES[(await world.park("a")).state] == "PARKED"


async def test_devices_that_cannot_be_asked_about_are_told_as_unhealthy(world: World, emulator: Emulator) -> None:
    node = await world.start(look_interval_s=0.05)
    assert node.devices[0].fault == ""
    emulator.inject(Fault("nvml", rc=999))
    deadline = time.monotonic() + 5
    while not node.devices[0].fault:
        assert time.monotonic() < deadline
        await world.parts()
    assert "Unknown" in node.devices[0].fault


async def test_a_machine_without_a_driver_has_no_node_and_says_why(world: World, emulator: Emulator) -> None:
    emulator.kill()
    with pytest.raises(Unavailable, match="NVML") as error:
        await world.start()
    assert "nvidia-smi" in error.value.hint
