"""A node loses power: all processes, /run with the CDI specs and sockets, and the boot id are gone; disks stay."""

from __future__ import annotations

import pytest
from installation import Installation
from kube_cluster import Cluster
from node_state import NodeState
from sharing import Groups
from team import Team
from turns import sharing

pytestmark = pytest.mark.timeout(600)
NODE = "node-a"
REBOOT_S = 300.0  # kubelet repeats a prepare that failed, since no plugin was there yet, only after 60 to 90 s


def test_pods_work_again_after_their_node_was_rebooted(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    turns = sharing(team, groups.create(node=NODE), "a", "b", node=NODE, restarts=True)
    node, state = cluster.nodes[NODE], NodeState(cluster.nodes[NODE])
    boot, claims = node.boot_id, {team.claim(job)["metadata"]["uid"] for job in ("a", "b")}
    assert state.specs() == state.sockets() == claims
    node.reboot()
    assert node.boot_id != boot
    assert not state.specs(), "the test's power cut has spared something"
    cluster.wait_for_nodes(limit_s=REBOOT_S)
    turns.wait_more(limit_s=REBOOT_S)
    assert state.boot_id() == node.boot_id
    assert state.specs() == state.sockets() == state.held() == claims
    installed.wait_ready(limit_s=REBOOT_S)
    turns.wait_more()
