"""`timeslice orchestrator --kubernetes`: what it needs to know, and what it says when that is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from timeslice.cli.main import main
from timeslice_orchestrator import log
from timeslice_orchestrator.config import KubernetesConfig
from timeslice_orchestrator.kubernetes.orchestrator import KubernetesOrchestrator


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "TIMESLICE_GROUPS", "TIMESLICE_NAMESPACE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(log, "configure", lambda level, *, as_json: None)  # the log stays that of the tests


def test_without_a_cluster_it_says_how_to_name_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["orchestrator", "--kubernetes", "--namespace", "timeslice", "--listen", "127.0.0.1:0"]) == 2
    error = capsys.readouterr().err
    assert "cannot reach a cluster" in error
    assert "--kubeconfig" in error


def test_outside_a_pod_the_namespace_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["orchestrator", "--kubernetes"]) == 2
    assert "--namespace" in capsys.readouterr().err


@pytest.mark.parametrize("duration", ["soon", "0.5", "nan", "4000"])
def test_a_lease_duration_that_makes_no_sense_is_refused(duration: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["orchestrator", "--kubernetes", "--namespace", "timeslice", "--lease-duration", duration]) == 2
    assert duration in capsys.readouterr().err


def test_a_groups_file_has_no_place_beside_timeslicegroups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["orchestrator", "--kubernetes", "--namespace", "timeslice", "--groups", "groups.yaml"]) == 2
    assert "TimesliceGroups" in capsys.readouterr().err


def test_everything_can_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[KubernetesConfig] = []

    def taken(self: KubernetesOrchestrator, config: KubernetesConfig) -> None:
        configs.append(config)
        raise KeyboardInterrupt

    monkeypatch.setattr(KubernetesOrchestrator, "__init__", taken)
    for name, value in {
        "KUBERNETES": "1",
        "NAMESPACE": "ours",
        "LEASE_NAME": "lease",
        "LEASE_DURATION": "6",
        "IDENTITY": "pod-1",
        "LISTEN": "127.0.0.1:1, 127.0.0.1:2",
        "TELEMETRY_LISTEN": ":9401",
        "NODE_ACCOUNT": "system:serviceaccount:ours:nodes",
        "KUBECONFIG": "admin.yaml",
    }.items():
        monkeypatch.setenv(f"TIMESLICE_{name}", value)
    assert main(["orchestrator"]) == 130
    assert configs == [
        KubernetesConfig(
            namespace="ours",
            listen=("127.0.0.1:1", "127.0.0.1:2"),
            identity="pod-1",
            node_account="system:serviceaccount:ours:nodes",
            lease_name="lease",
            lease_s=6.0,
            telemetry_listen=":9401",
            kubeconfig="admin.yaml",
        )
    ]


def test_the_help_has_an_example_for_pods(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["orchestrator", "--help"])
    assert re.search(r"timeslice orchestrator --kubernetes --listen \S+ --telemetry-listen", capsys.readouterr().out)
