"""A rolling update of everything while GPUs are shared and pods come and go."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest
from installation import NAMESPACE, Installation
from kube_cluster import Cluster
from manifests import sleeper
from sharing import Groups
from team import Team
from turns import sharing

pytestmark = pytest.mark.timeout(900)
NODE = "node-a"
VOLUMES_S = 300.0  # the kubelet brings new certificates to pods that run within two minutes


def test_nobody_fails_while_the_nodes_and_the_orchestrator_are_updated(
    installed: Installation, groups: Groups, team: Team
) -> None:
    shared = sharing(team, groups.create(node=NODE), "a", "b", node=NODE)
    other = groups.create("others", node="node-b")
    before = {pod["metadata"]["uid"] for pod in installed.node_pods().values()}
    certificate = installed.certificate()
    mark = uuid4().hex[:6]
    options = [f"--set-string={part}.podAnnotations.update={mark}" for part in ("node", "orchestrator")]
    started: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        update = pool.submit(installed.install, *options)
        while not update.done():
            started.append(f"pod-{len(started)}")
            team.apply(*sleeper(started[-1], group=other, node="node-b"))
            team.wait_running(started[-1])
            if len(started) > 2:
                team.delete("pod", started[-3], "--wait=false")
            time.sleep(0.5)
        update.result()
    assert not before & {pod["metadata"]["uid"] for pod in installed.node_pods().values()}
    assert installed.certificate() == certificate, "jobs that run trust the authority that they were started with"
    assert len(started) > 2, "too few calls to say anything"
    shared.wait_more()
    failed = [each for name in ("a", "b", *started) for each in team.events(name) if "FailedPrepare" in each]
    assert not failed, failed
    print(f"{len(started)} pods were started during the update; the longest pause of a turn was {shared.pause():.1f} s")


def test_jobs_go_on_when_the_certificates_are_made_anew(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    shared = sharing(team, groups.create(node=NODE), "a", "b", node=NODE)
    before = installed.certificate()
    cluster.kubectl("delete", "secret", "timeslice-orchestrator-tls", f"--namespace={NAMESPACE}")
    installed.install()
    assert installed.certificate()["ca.crt"] != before["ca.crt"]
    shared.wait_more()  # by connections that were there
    for pod in (*installed.orchestrator_pods(), installed.node_pods()[NODE]["metadata"]["name"]):
        cluster.kubectl("delete", "pod", pod, f"--namespace={NAMESPACE}")
    installed.wait_ready()
    shared.wait_more(limit_s=VOLUMES_S)  # by new ones
    print(f"the longest pause of a turn was {shared.pause():.1f} s")
