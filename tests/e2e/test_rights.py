"""The node's process with two capabilities in place of a privileged container, as docs/security.md describes it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from containers import main_process
from installation import Installation
from kube_cluster import Cluster
from reading import Object
from sharing import Groups
from team import Team
from timeslice_driver.processes import ProcFs
from turns import Turns, turn_taker

pytestmark = pytest.mark.timeout(600)
NODE = "node-a"
ANOTHER_USER = 1000
SYS_PTRACE, DAC_READ_SEARCH = 19, 2  # capabilities(7)
# Emulated GPUs are files like others, so the usual runtime stands for the one that gives GPUs to containers.
RUNTIME: Object = {
    "apiVersion": "node.k8s.io/v1",
    "kind": "RuntimeClass",
    "metadata": {"name": "nvidia"},
    "handler": "runc",
}


@pytest.fixture
def without_privileges(cluster: Cluster, installed: Installation) -> Iterator[Installation]:
    """The chart so installed; as others expect it afterwards."""
    cluster.kubectl("apply", "-f", "-", given=yaml.safe_dump(RUNTIME))
    installed.install("--set=node.privileged=false,node.runtimeClassName=nvidia")
    yield installed
    installed.install()
    cluster.kubectl("delete", "runtimeclass", "nvidia")


def test_jobs_of_any_user_take_turns_where_the_node_has_two_capabilities_and_no_privileges(
    cluster: Cluster, without_privileges: Installation, groups: Groups, team: Team
) -> None:
    node = main_process(cluster, without_privileges.node_pods()[NODE])
    assert ProcFs().capabilities(node) == 1 << SYS_PTRACE | 1 << DAC_READ_SEARCH
    group = groups.create(node=NODE)
    for name, user in (("root", 0), ("user", ANOTHER_USER)):
        template, pod = turn_taker(name, group=group, node=NODE)
        pod["spec"]["securityContext"] = {"runAsUser": user, "runAsGroup": user}
        team.apply(template, pod)
    team.wait_running("root", "user")
    assert team.devices("root") == team.devices("user")
    Turns(team, "root", "user").wait_more(3)
