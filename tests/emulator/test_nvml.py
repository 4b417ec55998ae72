"""nvidia-ml-py, unchanged, on the emulator's libnvidia-ml.so.1."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpu_emulator import Emulator, Fault
from gpu_emulator.puppet import Puppet, start_agent, start_job

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20
SCRIPT = Path(__file__).with_name("nvml_script.py")


def ask(emulator: Emulator, expression: str, *options: str, env: dict[str, str] | None = None) -> Any:
    command = [sys.executable, str(SCRIPT), expression, *options]
    done = subprocess.run(
        command, env={**emulator.env, **(env or {})}, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def pair() -> Iterator[Emulator]:
    with Emulator(gpus=2, memory=64 * MIB) as emulator:
        yield emulator


def test_the_inventory_reads_as_on_real_devices(pair: Emulator) -> None:
    found = ask(
        pair,
        """{
            "count": pynvml.nvmlDeviceGetCount(),
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "nvml": pynvml.nvmlSystemGetNVMLVersion(),
            "cuda": [pynvml.nvmlSystemGetCudaDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion_v2()],
            "devices": [
                {
                    "uuid": pynvml.nvmlDeviceGetUUID(handle(i)),
                    "name": pynvml.nvmlDeviceGetName(handle(i)),
                    "serial": pynvml.nvmlDeviceGetSerial(handle(i)),
                    "index": pynvml.nvmlDeviceGetIndex(handle(i)),
                    "minor": pynvml.nvmlDeviceGetMinorNumber(handle(i)),
                    "pci": describe(pynvml.nvmlDeviceGetPciInfo(handle(i))),
                    "architecture": pynvml.nvmlDeviceGetArchitecture(handle(i)),
                    "capability": pynvml.nvmlDeviceGetCudaComputeCapability(handle(i)),
                    "numa": pynvml.nvmlDeviceGetNumaNodeId(handle(i)),
                    "persistence": pynvml.nvmlDeviceGetPersistenceMode(handle(i)),
                    "compute_mode": pynvml.nvmlDeviceGetComputeMode(handle(i)),
                    "mig": pynvml.nvmlDeviceGetMigMode(handle(i)),
                    "max_mig": pynvml.nvmlDeviceGetMaxMigDeviceCount(handle(i)),
                    "is_mig": pynvml.nvmlDeviceIsMigDeviceHandle(handle(i)).value,
                    "utilization": describe(pynvml.nvmlDeviceGetUtilizationRates(handle(i))),
                    "pcie": [
                        pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle(i)),
                        pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle(i)),
                        pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle(i)),
                        pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle(i)),
                        pynvml.nvmlDeviceGetPcieThroughput(handle(i), pynvml.NVML_PCIE_UTIL_TX_BYTES),
                    ],
                    "memory": describe(pynvml.nvmlDeviceGetMemoryInfo(handle(i))),
                    "memory_v2": describe(pynvml.nvmlDeviceGetMemoryInfo(handle(i), pynvml.nvmlMemory_v2)),
                }
                for i in range(pynvml.nvmlDeviceGetCount())
            ],
        }""",
    )
    uuids = [device["uuid"] for device in pair.snapshot()["devices"]]
    assert (found["count"], found["driver"], found["cuda"]) == (2, "570.86", [12080, 12080])
    assert [device["uuid"] for device in found["devices"]] == uuids
    second = found["devices"][1]
    assert (second["index"], second["minor"], second["is_mig"]) == (1, 1, 0)
    assert second["pci"]["bus"] == 2
    assert second["architecture"] == 9
    assert second["capability"] == [9, 0]
    assert (second["persistence"], second["mig"], second["compute_mode"]) == (1, [0, 0], 0)
    assert second["pcie"] == [5, 16, 5, 16, 0]
    assert second["memory"] == {"total": 64 * MIB, "free": 64 * MIB, "used": 0}
    assert second["memory_v2"]["reserved"] == 0


def test_devices_are_found_by_uuid_and_bus_id(pair: Emulator) -> None:
    uuid = pair.snapshot()["devices"][1]["uuid"]
    by_uuid = f"pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID({uuid!r}))"
    by_bus = "pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId('0000:02:00.0'))"
    by_long_bus = "pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId('00000000:02:00.0'))"
    assert ask(pair, f"[{by_uuid}, {by_bus}, {by_long_bus}]") == [1, 1, 1]


@pytest.mark.parametrize(
    ("expression", "code"),
    [
        ("pynvml.nvmlDeviceGetHandleByIndex(2)", 2),
        ("pynvml.nvmlDeviceGetHandleByUUID('GPU-00000000-0000-0000-0000-000000000000')", 6),
        ("pynvml.nvmlDeviceGetHandleByPciBusId('0000:99:00.0')", 6),
        ("pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle(), 0)", 6),
        ("pynvml.nvmlSystemGetProcessName(2**22 + 5)", 6),
        ("pynvml.nvmlDeviceGetTemperature(handle(), 0)", 13),
    ],
)
def test_errors_have_the_real_codes(pair: Emulator, expression: str, code: int) -> None:
    assert ask(pair, expression) == {"error": code}


def test_calls_before_init_are_uninitialised(pair: Emulator) -> None:
    assert ask(pair, "pynvml.nvmlDeviceGetCount()", "--without-init") == {"error": 1}
    assert ask(pair, "[pynvml.nvmlShutdown(), pynvml.nvmlDeviceGetCount()]") == {"error": 1}


def test_without_a_daemon_the_driver_is_not_loaded_and_no_device_is_found(pair: Emulator, tmp_path: Path) -> None:
    nowhere = {"GPU_EMULATOR_SOCKET": str(tmp_path / "nobody")}
    assert ask(pair, "1", env=nowhere) == {"error": 9}
    with Puppet(pair, env=nowhere) as job:
        assert job.call("init")[0] == 100


def test_process_lists_show_host_pids_and_bytes_and_a_parked_process_vanishes(
    emulator: Emulator, job: Puppet, agent: Puppet
) -> None:
    assert ask(emulator, "processes(0)") == {str(job.pid): 6 * MIB}
    assert ask(emulator, f"pynvml.nvmlSystemGetProcessName({job.pid})") == sys.executable
    agent.must("lock", pid=job.pid)
    assert ask(emulator, "processes(0)") == {str(job.pid): 6 * MIB}
    agent.must("checkpoint", pid=job.pid)
    assert ask(emulator, "processes(0)") == {}
    assert ask(emulator, "describe(pynvml.nvmlDeviceGetMemoryInfo(handle()))")["used"] == 0
    agent.must("restore", pid=job.pid)
    assert ask(emulator, "processes(0)") == {str(job.pid): 6 * MIB}


def test_all_layouts_of_the_process_list_agree(emulator: Emulator, job: Puppet) -> None:
    with start_job(emulator, MIB) as other:
        expression = """[
            sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle())),
            sorted(p.pid for p in pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle())),
            sorted(p.pid for p in pynvml.nvmlDeviceGetRunningProcessDetailList(
                handle(), pynvml.nvmlProcessDetailList_v1, pynvml.NVML_PROCESS_MODE_COMPUTE)),
            [p.gpuInstanceId for p in pynvml.nvmlDeviceGetComputeRunningProcesses(handle())],
        ]"""
        pids = sorted([job.pid, other.pid])
        assert ask(emulator, expression) == [pids, pids, pids, [0xFFFFFFFF, 0xFFFFFFFF]]


@pytest.mark.parametrize(
    ("flags", "kind", "listed"),
    [
        ("mps", "MPSCompute", True),
        ("graphics", "Graphics", True),
        ("graphics", "Compute", False),
        ("unlisted", "Compute", False),
    ],
)
def test_flags_choose_the_list_that_a_process_appears_in(pair: Emulator, flags: str, kind: str, listed: bool) -> None:
    with start_job(pair, MIB, flags=flags) as job:
        assert (str(job.pid) in ask(pair, f"processes(0, {kind!r})")) is listed


def test_a_process_without_a_context_can_be_listed_with_no_memory(pair: Emulator) -> None:
    with start_agent(pair, flags="listed") as job:
        assert ask(pair, "processes(0)")[str(job.pid)] == 0


def test_a_busy_device_is_fully_utilised(emulator: Emulator, job: Puppet) -> None:
    job.must("launch_busy", milliseconds=60_000)
    assert ask(emulator, "describe(pynvml.nvmlDeviceGetUtilizationRates(handle()))")["gpu"] == 100


@pytest.mark.parametrize("code", [999, 15, 18])
def test_nvml_fails_as_scripted_and_recovers(emulator: Emulator, code: int) -> None:
    emulator.inject(Fault("nvmlDeviceGetMemoryInfo", nth=1, rc=code))
    assert ask(emulator, "pynvml.nvmlDeviceGetMemoryInfo(handle()).total") == {"error": code}
    assert ask(emulator, "pynvml.nvmlDeviceGetMemoryInfo(handle()).total") == 256 * MIB
    emulator.inject(Fault("nvml", nth=1, rc=code))
    assert ask(emulator, "pynvml.nvmlDeviceGetCount()") == {"error": code}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the persistence mode")
def test_root_can_switch_the_persistence_mode(emulator: Emulator) -> None:
    expression = "[pynvml.nvmlDeviceSetPersistenceMode(handle(), 0), pynvml.nvmlDeviceGetPersistenceMode(handle())]"
    assert ask(emulator, expression) == [None, 0]
    assert emulator.snapshot()["devices"][0]["persistence"] is False


def test_mig_mode_is_reported(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(mig=True)
    assert ask(emulator, "pynvml.nvmlDeviceGetMigMode(handle())") == [1, 1]


def test_a_hidden_symbol_is_a_function_that_is_not_found(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(hide=["nvmlDeviceGetComputeRunningProcesses_v3"])
    assert ask(emulator, "pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle())") == {"error": 13}
    assert ask(emulator, "pynvml.nvmlDeviceGetComputeRunningProcesses_v2(handle())") == []
