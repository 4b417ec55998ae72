"""The daemon and its clients under each other's misfortunes."""

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_emulator import Emulator, EmulatorError
from gpu_emulator.puppet import Puppet, start_agent, start_job

pytestmark = [pytest.mark.processes, pytest.mark.timeout(60)]

MIB = 1 << 20


def test_two_emulators_do_not_disturb_each_other(start_emulator: Callable[..., Emulator]) -> None:
    one, two = start_emulator(memory=16 * MIB), start_emulator(memory=16 * MIB)
    assert one.snapshot()["devices"][0]["uuid"] != two.snapshot()["devices"][0]["uuid"]
    with start_job(one, 12 * MIB) as first, start_job(two, 12 * MIB) as second, start_agent(one) as agent:
        assert agent.call("lock", pid=second.pid)[0] == 1
        assert agent.call("lock", pid=first.pid)[0] == 0
        assert second.call("device_count") == (0, 1)


def test_when_the_daemon_is_killed_calls_return_an_unknown_error_and_never_hang(
    start_emulator: Callable[..., Emulator],
) -> None:
    emulator = start_emulator()
    with start_job(emulator, MIB) as job, start_job(emulator, MIB) as locked, start_agent(emulator) as agent:
        agent.must("lock", pid=locked.pid)
        blocked = locked.begin("device_count")
        assert locked.is_blocked(blocked, 0.05)
        emulator.kill()
        assert locked.finish(blocked)[0] == 999
        assert job.call("allocate", size=8 * MIB)[0] == 999
        assert agent.call("get_state", pid=job.pid)[0] == 999


@pytest.mark.parametrize(
    "message",
    [
        b"\n",
        b"nonsense\n",
        b"\xff\xfe\x00\x01\n",
        b"job\n",
        b"job x y z\n",
        b"job 1 purple -\n",
        b"alloc\n",
        b"alloc 0 0 99999999999\n",
        b"alloc a b c\n",
        b"lock\n",
        b"lock pid\n",
        b"nvml\n",
        b"nvml nvmlDeviceGetName x\n",
        b"nvml nvmlSystemGetProcessName -1 x\n",
        b"restore 1 aa bb cc\n",
        b"control\n",
        b"control {}\n",
        b"control [1, 2]\n",
        b'control {"do": "set_device", "index": 99, "modes": {}}\n',
        b'control {"do": "set_device", "index": 0, "modes": {"arena": 1}}\n',
        b"x" * (3 << 20),
        b"lock 1",
    ],
    ids=lambda message: repr(message[:40]),
)
def test_a_malformed_message_is_refused_or_dropped_and_harms_nobody(emulator: Emulator, message: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(emulator.socket_path))
        try:
            connection.sendall(message)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(4096)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert emulator.snapshot()["devices"][0]["used"] == 0
    assert "Traceback" not in emulator.log_path.read_text()


def test_a_job_connection_that_talks_nonsense_is_dropped(emulator: Emulator) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10)
        connection.connect(str(emulator.socket_path))
        connection.sendall(b"job 1 - -\n")
        assert connection.recv(4096).startswith(b"0 ")
        connection.sendall(b"certainly not three numbers\n")
        while connection.recv(4096):
            pass
    assert emulator.snapshot()["processes"] == []


def test_a_socket_path_that_is_too_long_is_named(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 120)
    with pytest.raises(EmulatorError, match="longer than 107 bytes"), Emulator(socket_path=path):
        pass


def test_a_client_with_a_path_that_is_too_long_finds_no_device(shared: Emulator) -> None:
    with Puppet(shared, env={"GPU_EMULATOR_SOCKET": "/" + "x" * 120}) as job:
        assert job.call("init")[0] == 100


def test_a_stale_socket_is_replaced_and_a_living_daemon_is_not(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Emulator(socket_path=path) as first:
        first.kill()
        assert path.exists()
        with Emulator(socket_path=path):
            with pytest.raises(EmulatorError, match="another daemon listens"), Emulator(socket_path=path):
                pass
            with start_agent(first) as job:
                assert job.must("device_count") == 1
    assert not path.exists()


def test_a_bad_option_is_an_error_with_its_reason() -> None:
    with pytest.raises(EmulatorError, match="colour"), Emulator(faults=[{"call": "lock", "colour": 1}]):
        pass


TWO_DAEMONS = """
import pynvml
for _ in range(2):
    pynvml.nvmlInit()
    print(pynvml.nvmlSystemGetDriverVersion(), flush=True)
    input()
"""


def test_a_process_whose_daemon_was_replaced_speaks_with_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with Emulator(driver_version="570.86", socket_path=path) as first:
        process = subprocess.Popen(
            [sys.executable, "-c", TWO_DAEMONS], env=first.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "570.86"
    with Emulator(driver_version="575.10", socket_path=path):
        said, _ = process.communicate("\n\n", timeout=20)
    assert said.strip() == "575.10"
