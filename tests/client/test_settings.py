from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest
from timeslice import Mode, OrchestratorClient
from timeslice.settings import Given, resolve
from timeslice_api.addresses import authority_of, checked_address
from timeslice_api.errors import ConfigError, InvalidRequest
from timeslice_api.names import checked_socket_path

OBSERVED = ["job_id", "group_ids", "pid", "ended_unix_s", "held_s", "idle_s"]


def test_no_configuration_at_all_is_off_with_one_line(caplog: pytest.LogCaptureFixture) -> None:
    client = OrchestratorClient()
    assert client.mode is Mode.OFF
    assert [record.message for record in caplog.records] == [
        "timeslice is off: neither TIMESLICE_ORCHESTRATOR nor TIMESLICE_JOB_ID is set"
    ]
    with client.on_accelerators("g") as lease, client.on_accelerators() as default:
        assert lease.held
        assert default.lease_id == ""


def test_off_by_name_says_nothing_and_needs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    client = OrchestratorClient(job_id="job-a", mode="off")
    client.acquire()
    client.yield_()
    assert caplog.records == []


@pytest.mark.parametrize(
    ("env", "missing"),
    [
        ({"TIMESLICE_ORCHESTRATOR": "h:1"}, "TIMESLICE_JOB_ID is not set"),
        ({"TIMESLICE_JOB_ID": "job-a"}, "TIMESLICE_ORCHESTRATOR is not set"),
        ({"TIMESLICE_GROUP_ID": "g"}, "TIMESLICE_JOB_ID and TIMESLICE_ORCHESTRATOR are not set"),
        ({"TIMESLICE_MODE": "on"}, "TIMESLICE_JOB_ID and TIMESLICE_ORCHESTRATOR are not set"),
        ({"TIMESLICE_MODE": "observe", "TIMESLICE_JOB_ID": "job-a"}, "TIMESLICE_OBSERVE_FILE is not set"),
    ],
    ids=lambda value: "+".join(value) if isinstance(value, dict) else "",
)
def test_half_a_configuration_names_what_is_missing(env: dict[str, str], missing: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(Given(), env)
    assert caught.value.message == missing
    assert "TIMESLICE_MODE=off" in caught.value.hint


def test_arguments_go_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMESLICE_ORCHESTRATOR", "host:1")
    monkeypatch.setenv("TIMESLICE_JOB_ID", "from-env")
    client = OrchestratorClient(job_id="from-code")
    assert (client.job_id, client.mode) == ("from-code", Mode.ON)


@pytest.mark.parametrize(
    "address", ["host:1", "dns:///host:1", "dns:host:1", "dns://10.0.0.1:53/host.ns.svc:1", "[::1]:1"]
)
def test_an_address_may_be_a_name_that_stands_for_several_machines(address: str) -> None:
    assert checked_address(address) == address


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("10.0.0.1:1,10.0.0.2:2", "ipv4:10.0.0.1:1,10.0.0.2:2"),
        ("10.0.0.1:1, 10.0.0.2:2", "ipv4:10.0.0.1:1,10.0.0.2:2"),
        ("[fd00::1]:1,[fd00::2]:1", "ipv6:[fd00::1]:1,[fd00::2]:1"),
    ],
)
def test_several_machines_are_dialled_one_at_a_time(address: str, target: str) -> None:
    assert checked_address(address) == target
    assert authority_of(address) == address.partition(",")[0]


@pytest.mark.parametrize(
    "address",
    ["a:1,b:1", "10.0.0.1:1,", "10.0.0.1:1,[fd00::1]:1", "10.0.0.1:1,unix:///x", "fd00::1:1,fd00::2:1"],
)
def test_several_machines_are_named_by_ip_addresses_of_one_kind(address: str) -> None:
    with pytest.raises(ConfigError, match="several ip:port") as caught:
        checked_address(address)
    assert "dns:///name:port" in caught.value.hint


@pytest.mark.parametrize(
    "address",
    [
        *("host", "http://host:1", "host:port", "host:99999", ":1", "unix:", "unix://x/y", "dns:///host", "dns:///:1"),
        *("unix:///run/\udcff.sock", "unix:///run/a\0b", "h\udcff:1", "[fe80::1%\udcff]:1,[fe80::2]:1"),
    ],
)
def test_an_address_that_cannot_be_dialled_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        OrchestratorClient(address, job_id="job-a")


def test_a_socket_path_over_107_bytes_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="107"):
        OrchestratorClient(f"unix:///{'x' * 107}", job_id="job-a")


@pytest.mark.parametrize("path", ["/run/\udcff.sock", "/run/a\nb.sock"])
def test_a_nodes_socket_whose_path_is_no_text_is_refused_at_once(path: str) -> None:
    with pytest.raises(InvalidRequest, match=r"node_socket .* is not text"):
        OrchestratorClient("host:1", job_id="job-a", node_socket=path)


@pytest.mark.parametrize("path", ["/", "/run/", ".", "/run/.."])
def test_a_socket_path_that_names_no_file_is_refused_at_once(path: str) -> None:
    with pytest.raises(InvalidRequest, match="names no file"):
        checked_socket_path(path, "socket")


def test_a_job_id_of_ten_thousand_characters_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="job_id has 10000 characters"):
        OrchestratorClient("host:1", job_id="x" * 10_000)


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="on, observe or off"):
        OrchestratorClient("host:1", job_id="job-a", mode="maybe")


def test_no_group_and_no_default_is_an_error_that_says_what_to_set() -> None:
    client = OrchestratorClient("host:1", job_id="job-a")
    with pytest.raises(ConfigError, match="TIMESLICE_GROUP_ID"):
        client.acquire()
    with pytest.raises(ConfigError):
        client.acquire([])


def test_a_node_that_nobody_named_is_told_since_the_job_would_not_be_parked(caplog: pytest.LogCaptureFixture) -> None:
    OrchestratorClient("host:1", job_id="job-a", node_socket="").close()
    OrchestratorClient("host:1", job_id="job-a", node_socket="/tmp/n.sock").close()
    assert caplog.messages == []
    OrchestratorClient("host:1", job_id="job-a").close()
    [line] = caplog.messages
    assert "TIMESLICE_NODE_SOCKET is not set" in line


def test_observe_is_chosen_by_the_environment_and_writes_the_documented_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMESLICE_MODE", "observe")
    monkeypatch.setenv("TIMESLICE_OBSERVE_FILE", str(tmp_path / "phases.jsonl"))
    monkeypatch.setenv("TIMESLICE_ORCHESTRATOR", "host:1")  # nobody is there, and nobody is asked
    monkeypatch.setenv("TIMESLICE_JOB_ID", "job-a")
    with OrchestratorClient() as client, client.on_accelerators(["g", "h"]):
        pass
    [line] = (tmp_path / "phases.jsonl").read_text().splitlines()
    phase = json.loads(line)
    assert list(phase) == OBSERVED
    assert (phase["group_ids"], phase["pid"]) == (["g", "h"], os.getpid())
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    assert ", ".join(f"`{key}`" for key in OBSERVED) in " ".join(readme.split())


def test_observe_records_phases_and_locks_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = tmp_path / "phases.jsonl"
    client = OrchestratorClient(job_id="job-a", mode="observe", observe_file=str(file))
    for _ in range(2):
        with client.on_accelerators("g"), client.on_accelerators("g"):
            pass
    first, second = [json.loads(line) for line in file.read_text().splitlines()]
    assert (first["job_id"], first["group_ids"], first["idle_s"]) == ("job-a", ["g"], None)
    assert second["held_s"] >= 0
    assert second["idle_s"] >= 0


def test_observe_goes_on_without_a_file_that_it_can_write_and_says_so_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = OrchestratorClient(job_id="job-a", mode="observe", observe_file=str(tmp_path / "none" / "phases.jsonl"))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), client.on_accelerators("g"):
            raise ZeroDivisionError
    [line] = caplog.messages
    assert "phases are not recorded" in line
    assert "No such file" in line
