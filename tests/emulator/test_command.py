"""The commands: cuda-checkpoint, gpu-emulator, its benchmark; and libraries of an older driver."""

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_emulator import Emulator
from gpu_emulator.bench import measure
from gpu_emulator.emulator import HOME, build_libraries
from gpu_emulator.puppet import Puppet, start_job
from gpu_emulator.quantities import parse_bytes, parse_rate

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20


def cuda_checkpoint(emulator: Emulator, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        ["cuda-checkpoint", *arguments], env=emulator.env, capture_output=True, text=True, timeout=30, check=False
    )
    return done.returncode, done.stdout.strip(), done.stderr.strip()


def test_the_command_takes_a_process_through_all_states(emulator: Emulator, job: Puppet) -> None:
    pid = str(job.pid)
    seen = []
    for action in ("lock", "checkpoint", "restore", "unlock"):
        assert cuda_checkpoint(emulator, "--action", action, "--pid", pid, "--timeout", "5000") == (0, "", "")
        seen.append(cuda_checkpoint(emulator, "--get-state", "--pid", pid)[1])
    assert seen == ["locked", "checkpointed", "locked", "running"]


def test_toggle_parks_and_wakes_several_processes(emulator: Emulator, job: Puppet) -> None:
    with start_job(emulator, MIB) as other:
        pids = ["--pid", str(job.pid), "--pid", str(other.pid)]
        states = []
        for _ in range(2):
            assert cuda_checkpoint(emulator, "--toggle", *pids) == (0, "", "")
            states.append(cuda_checkpoint(emulator, "--get-state", *pids)[1].split())
        assert states == [["checkpointed", "checkpointed"], ["running", "running"]]


def test_the_exit_status_is_the_cuda_error_and_the_message_names_the_process(emulator: Emulator, job: Puppet) -> None:
    pid = str(job.pid)
    assert cuda_checkpoint(emulator, "--action", "lock", "--pid", "4194309") == (
        1,
        "",
        "Could not lock on process ID 4194309: invalid argument",
    )
    code, _, message = cuda_checkpoint(emulator, "--action", "unlock", "--pid", pid)
    assert code == 401 & 0xFF
    assert message == f"Could not unlock on process ID {pid}: the operation cannot be performed in the present state"
    job.must("launch_busy", milliseconds=60_000)
    code, _, message = cuda_checkpoint(emulator, "--action", "lock", "--pid", pid, "--timeout", "50")
    assert code == 600 & 0xFF
    assert message.endswith("device not ready")


def test_the_restore_thread_is_printed(emulator: Emulator, job: Puppet) -> None:
    code, tid, _ = cuda_checkpoint(emulator, "--get-restore-tid", "--pid", str(job.pid))
    assert code == 0
    assert Path(f"/proc/{job.pid}/task/{tid}").exists()


def test_the_command_moves_a_process_to_another_device(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(gpus=2, memory=32 * MIB, driver_version="580.65")
    old, new = (device["uuid"] for device in emulator.snapshot()["devices"])
    with start_job(emulator, 4 * MIB) as job:
        assert cuda_checkpoint(emulator, "--toggle", "--pid", str(job.pid))[0] == 0
        moved = cuda_checkpoint(emulator, "--action", "restore", "--pid", str(job.pid), "--device-map", f"{old}={new}")
        assert moved[0] == 0
        assert [device["used"] for device in emulator.snapshot()["devices"]] == [0, 6 * MIB]


def test_driver_550_has_no_checkpoint_api_and_its_command_only_toggles(start_emulator: Callable[..., Emulator]) -> None:
    emulator = start_emulator(driver_version="550.54")
    library = ctypes.CDLL(str(emulator.libraries / "libcuda.so.1"))
    with pytest.raises(AttributeError):
        _ = library.cuCheckpointProcessLock
    assert library.cuMemAlloc_v2 is not None
    found = ctypes.c_void_p()
    assert library.cuGetProcAddress(b"cuCheckpointProcessLock", ctypes.byref(found), 12080, ctypes.c_uint64(0)) == 500
    assert library.cuGetProcAddress(b"cuMemAlloc", ctypes.byref(found), 12080, ctypes.c_uint64(0)) == 0
    with start_job(emulator, MIB) as job:
        assert cuda_checkpoint(emulator, "--action", "lock", "--pid", str(job.pid))[0] == 801 & 0xFF
        assert cuda_checkpoint(emulator, "--toggle", "--pid", str(job.pid))[0] == 0
        assert emulator.snapshot()["processes"][0]["state"] == "CHECKPOINTED"


def test_error_codes_have_names_and_texts() -> None:
    library = ctypes.CDLL(str(build_libraries() / "libcuda.so.1"))
    name, text = ctypes.c_char_p(), ctypes.c_char_p()
    assert library.cuGetErrorName(2, ctypes.byref(name)) == 0
    assert library.cuGetErrorString(2, ctypes.byref(text)) == 0
    assert (name.value, text.value) == (b"CUDA_ERROR_OUT_OF_MEMORY", b"out of memory")
    assert library.cuGetErrorName(123456, ctypes.byref(name)) == 1


def test_run_starts_a_command_with_emulated_gpus_and_returns_its_status() -> None:
    program = (
        "import ctypes, sys; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int();"
        "assert cuda.cuInit(0) == 0; cuda.cuDeviceGetCount(ctypes.byref(n)); sys.exit(n.value)"
    )
    command = [
        str(HOME / "gpu-emulator"),
        "run",
        "--gpus",
        "3",
        "--memory",
        "16MiB",
        "--",
        sys.executable,
        "-c",
        program,
    ]
    assert subprocess.run(command, timeout=30, check=False).returncode == 3


def test_a_daemon_served_by_hand_says_when_it_is_ready(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    daemon = subprocess.Popen(
        [str(HOME / "gpu-emulator"), "--socket", str(path), "--memory", "16MiB"], stdout=subprocess.PIPE, text=True
    )
    with daemon:
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == f"ready at {path}\n"
        program = "import ctypes; raise SystemExit(ctypes.CDLL('libcuda.so.1').cuInit(0))"
        env = {**os.environ, "LD_LIBRARY_PATH": str(build_libraries()), "GPU_EMULATOR_SOCKET": str(path)}
        assert subprocess.run([sys.executable, "-c", program], env=env, timeout=30, check=False).returncode == 0
        daemon.terminate()
        assert daemon.wait(10) == 0
    assert not path.exists()


@pytest.mark.parametrize(
    ("text", "size"), [("256MiB", 256 << 20), ("1.5GB", 1_500_000_000), ("4096", 4096), ("2g", 2 << 30)]
)
def test_sizes_are_read_as_people_write_them(text: str, size: int) -> None:
    assert parse_bytes(text) == size


def test_rates_are_sizes_per_second_or_none() -> None:
    assert (parse_rate("3GB/s"), parse_rate("none")) == (3_000_000_000, 0)
    with pytest.raises(ValueError, match="not a size"):
        parse_rate("fast")


def test_the_benchmark_measures_every_step() -> None:
    measured = measure(16 * MIB, rounds=2)
    assert {
        "lock",
        "checkpoint",
        "restore",
        "unlock",
        "memcpy",
        "park_vs_memcpy",
        "restore_vs_memcpy",
    } <= measured.keys()
    assert all(value > 0 for value in measured.values())
    json.dumps(measured)


def readme_blocks(language: str) -> list[str]:
    text = (HOME / "README.md").read_text()
    return [block.split("```")[0] for block in text.split(f"```{language}\n")[1:]]


def test_the_commands_of_the_readme_work() -> None:
    (block,) = readme_blocks("sh")
    for line in block.splitlines():
        done = subprocess.run(["sh", "-ec", line], cwd=HOME, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr


def test_the_example_of_the_readme_works() -> None:
    (block,) = readme_blocks("python")
    done = subprocess.run([sys.executable, "-c", block], cwd=HOME, capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, b"0\n"), done.stderr


def test_the_fault_script_of_the_readme_is_valid(start_emulator: Callable[..., Emulator]) -> None:
    (block,) = readme_blocks("json")
    assert start_emulator(faults=json.loads(block), memory=16 * MIB).snapshot()["processes"] == []
