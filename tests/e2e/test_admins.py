"""People who act on groups, as docs/security.md has it: the role `timeslice-operator`, and a token of an account."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from installation import NAMESPACE, Installation
from kube_cluster import Cluster
from kube_cluster.errors import ClusterError
from manifests import pod, running
from sharing import Groups
from shown import commands, snippets
from team import Team

pytestmark = pytest.mark.timeout(200)

BINDING = "kubectl create clusterrolebinding operators"
CA = r"--output=jsonpath={.data.ca\.crt}"
ORCHESTRATOR = f"timeslice-orchestrator.{NAMESPACE}.svc.cluster.local:7070"


@pytest.fixture
def shown(team: Team) -> list[str]:
    """The document's commands, for the account of the team's namespace: the binding, the token, a first call."""
    (block,) = [each for each in snippets("text") if BINDING in each.text]
    team.kubectl("create", "serviceaccount", "admin")
    return [re.sub(r"\bops\b", team.namespace, command) for command in commands(block)]


@pytest.fixture
def desk(cluster: Cluster, team: Team) -> Iterator[Team]:
    """A pod from which the orchestrator is called; what was bound to an account of the team's goes with it."""
    authority = cluster.kubectl("get", "configmap", "timeslice-orchestrator-ca", f"--namespace={NAMESPACE}", CA)
    place = {"TIMESLICE_ORCHESTRATOR": ORCHESTRATOR, "TIMESLICE_TLS_CA": "/tmp/ca.crt"}
    team.apply(running(pod("desk"), "sleep", "600", **place))
    team.wait_running("desk")
    put(team, "ca.crt", authority)
    yield team
    cluster.kubectl("delete", "clusterrolebinding", "operators", "--ignore-not-found")


def test_an_account_with_the_role_acts_on_groups_by_the_commands_of_the_document_and_no_other_does(
    installed: Installation, groups: Groups, desk: Team, shown: list[str], tmp_path: Path
) -> None:
    group = groups.create(node="node-a")
    bind, make_token, call = shown
    here(make_token, tmp_path)
    put(desk, "admin.token", (tmp_path / "admin.token").read_text())
    admin = call.removesuffix("status")
    who = f"system:serviceaccount:{desk.namespace}:admin"

    with pytest.raises(ClusterError, match="lacks the right to release"):
        there(desk, f"{admin} release --force {group}")

    here(bind, tmp_path)
    assert group in there(desk, call)
    assert f"{group} is draining" in there(desk, f"{admin} drain {group}")
    there(desk, f"{admin} resume {group}")
    told = [entry for entry in audited(installed) if entry["group_id"] == group]
    outcomes = [(entry["act"], who in entry["message"], "refused" in entry["message"]) for entry in told]
    assert outcomes == [("release", True, True), ("drain", True, False), ("resume", True, False)]


def test_a_token_for_another_audience_is_none(desk: Team, groups: Groups, shown: list[str], tmp_path: Path) -> None:
    group = groups.create(node="node-a")
    bind, make_token, call = shown
    here(bind, tmp_path)
    here(make_token.replace("--audience timeslice", ""), tmp_path)
    put(desk, "admin.token", (tmp_path / "admin.token").read_text())
    with pytest.raises(ClusterError, match="audience"):
        there(desk, f"{call.removesuffix('status')} drain {group}")


def here(command: str, folder: Path) -> None:
    """Runs it where kubectl is."""
    done = subprocess.run(
        ["sh", "-euc", command], cwd=folder, env=os.environ, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, f"{command}\n{done.stderr}"


def there(team: Team, command: str) -> str:
    """Runs it in the pod. ClusterError with what it said when it fails."""
    return team.kubectl("exec", "desk", "--", "sh", "-euc", f"cd /tmp; {command}")


def put(team: Team, name: str, text: str) -> None:
    """Puts a file there."""
    team.kubectl("exec", "--stdin", "desk", "--", "sh", "-euc", f"cat > /tmp/{name}", given=text)


def audited(installed: Installation) -> list[dict[str, str]]:
    """The audit lines of the orchestrator that leads."""
    said = installed.logs(installed.leader()).splitlines()
    lines = (json.loads(line) for line in said if line.startswith("{"))  # C libraries write lines of their own
    return [line for line in lines if line.get("logger") == "timeslice.audit"]
