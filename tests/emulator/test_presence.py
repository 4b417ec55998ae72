"""What a process sees of the GPUs when only some of their device files are there, as in a container."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from gpu_emulator import Emulator
from gpu_emulator.puppet import Puppet

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20
SCRIPT = Path(__file__).with_name("nvml_script.py")


@pytest.fixture(scope="module")
def four() -> Iterator[Emulator]:
    with Emulator(gpus=4, memory=16 * MIB) as emulator:
        yield emulator


@pytest.fixture
def container(tmp_path: Path) -> dict[str, str]:
    """The environment of one that was given the second and the fourth GPU."""
    for name in ("nvidiactl", "nvidia1", "nvidia3"):
        (tmp_path / name).touch()
    return {"GPU_EMULATOR_DEV_ROOT": str(tmp_path)}


def uuids(emulator: Emulator) -> list[str]:
    return [device["uuid"] for device in emulator.snapshot()["devices"]]


def seen(job: Puppet) -> list[str]:
    """UUIDs as NVML has them."""
    found = [UUID(job.must("device_uuid", device=number)) for number in range(job.must("device_count"))]
    return [f"GPU-{uuid}" for uuid in found]


def nvml(emulator: Emulator, env: dict[str, str], expression: str) -> Any:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), expression],
        env={**emulator.env, **env},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return json.loads(done.stdout)


def test_cuda_has_only_the_gpus_whose_device_files_are_there(four: Emulator, container: dict[str, str]) -> None:
    with Puppet(four, env=container) as job:
        job.must("init")
        assert seen(job) == [uuids(four)[1], uuids(four)[3]]
        job.must("create_context", device=1)
        job.must("allocate", size=4 * MIB)
        used = [device["used"] > 0 for device in four.snapshot()["devices"]]
        assert used == [False, False, False, True]
        assert job.call("create_context", device=2)[0] == 101


def test_a_choice_of_visible_devices_counts_those_that_are_there(four: Emulator, container: dict[str, str]) -> None:
    wanted = uuids(four)
    for choice, expected in (("1", [3]), ("1,0", [3, 1]), (f"{wanted[3]},{wanted[0]},{wanted[1]}", [3])):
        with Puppet(four, env={**container, "CUDA_VISIBLE_DEVICES": choice}) as job:
            job.must("init")
            assert seen(job) == [wanted[index] for index in expected]


def test_without_any_device_file_there_is_no_device(four: Emulator, tmp_path: Path) -> None:
    env = {"GPU_EMULATOR_DEV_ROOT": str(tmp_path)}
    with Puppet(four, env=env) as job:
        assert job.call("init")[0] == 100
    assert nvml(four, env, "pynvml.nvmlDeviceGetCount()") == 0


def test_nvml_numbers_the_gpus_that_are_there_and_knows_no_others(four: Emulator, container: dict[str, str]) -> None:
    of_device = ("nvmlDeviceGetUUID", "nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber")
    one = ", ".join(f"pynvml.{function}(handle(i))" for function in of_device)
    listed = f"[[{one}] for i in range(pynvml.nvmlDeviceGetCount())]"
    first, second, third, fourth = uuids(four)
    assert nvml(four, container, listed) == [[second, 0, 1], [fourth, 1, 3]]
    assert nvml(four, container, "handle(2)") == {"error": 2}
    for hidden in (first, third):
        assert nvml(four, container, f"pynvml.nvmlDeviceGetHandleByUUID({hidden!r})") == {"error": 6}
    assert nvml(four, container, "pynvml.nvmlDeviceGetHandleByPciBusId('0000:01:00.0')") == {"error": 6}
    assert nvml(four, container, f"pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByUUID({fourth!r}))") == 1
