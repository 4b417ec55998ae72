"""The commands that the documents show for Kubernetes, run as they are written, one after the other."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from installation import CHART, NAMESPACE, VALUES, Installation
from kube_cluster import Cluster
from shown import ROOT, Snippet, commands, snippets

pytestmark = pytest.mark.timeout(900)

LIMIT_S = 420.0  # of a command: one of them waits 300 s for the jobs
NODE = "node-a"
LABELS = ("timeslice.dev/gpus", "timeslice.dev/pool")

Shell = Callable[[str], str]


def block(document: str) -> Snippet:
    """The only block of a document that is for a shell with a cluster."""
    (found,) = [each for each in snippets("shell") if each.document == ROOT / document]
    return found


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    """Runs a command in the repository's folder. Its helm has values of the cluster's own, as anybody's would."""
    helm = shutil.which("helm")
    wrapper = tmp_path / "helm"
    wrapper.write_text(
        f'#!/bin/sh\ncase $1 in install|upgrade) exec {helm} "$@" --values {VALUES};; *) exec {helm} "$@";; esac\n'
    )
    wrapper.chmod(0o755)
    env = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NODE": NODE}

    def run(command: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT, env=env, capture_output=True, text=True, timeout=LIMIT_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    yield run
    run("kubectl delete -f examples/kubernetes/ --ignore-not-found")
    for label in LABELS:
        run(f"kubectl label node {NODE} {label}-")


def test_the_commands_of_the_readme_run_as_written_from_install_to_uninstall(cluster: Cluster, shell: Shell) -> None:
    installation = Installation(cluster)
    if installation.node_pods():
        installation.uninstall()
    said = {command: shell(command) for command in commands(block("README.md"))}
    assert "helm install timeslice" in next(iter(said))
    assert [command for command in said if command.startswith("kubectl wait") and "job/job-b" in command]
    head, *rows = said["kubectl get timeslicegroups"].splitlines()
    assert head.split() == ["NAME", "HOLDER", "WAITING", "DEVICES", "DUTY", "AGE"]
    assert [row for row in rows if row.startswith("trainer-group ")]
    assert "helm uninstall timeslice" in list(said)[-1]
    assert not installation.node_pods()


def test_an_upgrade_as_the_documents_say_leaves_it_ready(installed: Installation, shell: Shell) -> None:
    before = {pod["metadata"]["uid"] for pod in installed.node_pods().values()}
    for command in commands(block("docs/kubernetes.md")):
        shell(command)
    installed.wait_ready()
    after = {pod["metadata"]["uid"] for pod in installed.node_pods().values()}
    assert after == before, "nothing has changed, so nothing starts anew"


def test_an_upgrade_as_the_documents_say_from_a_chart_with_fewer_values_keeps_what_was_set(
    installed: Installation, shell: Shell, tmp_path: Path
) -> None:
    older = tmp_path / "older"
    (older / "templates").mkdir(parents=True)
    shutil.copy(CHART / "Chart.yaml", older)
    (older / "values.yaml").write_text("logLevel: INFO")
    installed.uninstall()
    shell(f"helm install timeslice {older} --namespace {NAMESPACE} --set logLevel=DEBUG")
    for command in commands(block("docs/kubernetes.md")):
        shell(command)
    installed.wait_ready()
    (container,) = next(iter(installed.node_pods().values()))["spec"]["containers"]
    assert {"name": "TIMESLICE_LOG_LEVEL", "value": "DEBUG"} in container["env"]
    installed.uninstall()
