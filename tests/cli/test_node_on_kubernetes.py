"""`timeslice node --kubernetes`: what the options make of it, and what half a configuration is told."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from timeslice.cli import node, node_on_kubernetes
from timeslice.cli.main import main
from timeslice_api.errors import ConfigError


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIMESLICE_ORCHESTRATOR", "TIMESLICE_STATE_DIR", "TIMESLICE_TELEMETRY_LISTEN", "POD_UID"):
        monkeypatch.delenv(name, raising=False)


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    node.add(parser.add_subparsers())
    return parser.parse_args(["node", *words])


def test_the_environment_of_a_daemon_set_is_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in {
        "TIMESLICE_KUBERNETES": "1",
        "TIMESLICE_NODE_NAME": "node-a",
        "TIMESLICE_ORCHESTRATOR": "timeslice-orchestrator.timeslice.svc.cluster.local:7070",
        "TIMESLICE_STATE_DIR": str(tmp_path),
        "TIMESLICE_DRA_MODE": "lanes",
        "TIMESLICE_HOST_MEMORY": "800Gi",
        "TIMESLICE_HOST_MEMORY_RESERVE": "16Gi",
        "TIMESLICE_BOOT_ID_FILE": str(tmp_path / "boot_id"),
        "POD_UID": "some-uid",
    }.items():
        monkeypatch.setenv(name, value)
    arguments = parsed()
    assert arguments.kubernetes
    config = node_on_kubernetes.plugin_config(arguments, node_on_kubernetes.state_dir(arguments))
    assert (config.node_name, config.pod_uid, config.mode) == ("node-a", "some-uid", "lanes")
    assert config.orchestrator == "timeslice-orchestrator.timeslice.svc.cluster.local:7070"
    assert (config.host_memory, config.host_memory_reserve) == (800 << 30, 16 << 30)
    assert (config.state_dir, config.boot_id_file) == (tmp_path / "dra", tmp_path / "boot_id")
    assert config.sockets == Path("/run/timeslice/claims")


def test_its_state_outlives_the_pod_unless_said_otherwise() -> None:
    assert node_on_kubernetes.state_dir(parsed("--kubernetes")) == Path("/var/lib/timeslice")


def test_a_quantity_that_is_none_is_named_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--host-memory 'much' is not a quantity"):
        node_on_kubernetes.plugin_config(parsed("--host-memory", "much"), tmp_path)


def test_half_a_configuration_is_told_what_is_missing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["node", "--kubernetes", "--state-dir", str(tmp_path)]) == 2
    assert "a node on Kubernetes needs an orchestrator" in capsys.readouterr().err
    assert main(["node", "--telemetry-listen", ":0", "--state-dir", str(tmp_path)]) == 2
    assert "--telemetry-listen is for a node with --kubernetes" in capsys.readouterr().err
