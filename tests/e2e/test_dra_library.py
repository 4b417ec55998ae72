"""The kubelet plugin library, by its example, under real kubelets, containerd, scheduler and API server."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from uuid import uuid4

import dice
import pytest
import yaml
from dice import DESCRIBED, DRIVER, Dice, Player, running, slices, specs
from installation import IMAGE
from kube_cluster import Cluster, WorkerNode
from kube_cluster.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

Players = Callable[[], Player]


@pytest.fixture(scope="module")
def node(cluster: Cluster) -> Iterator[WorkerNode]:
    """The node that has dice. What the tests leave there goes at the end."""
    cluster.kubectl("apply", "-f", str(dice.EXAMPLE / "class.yaml"))
    yield cluster.nodes["node-a"]
    cluster.kubectl("delete", "-f", str(dice.EXAMPLE / "class.yaml"))
    cluster.kubectl("delete", "resourceslices", "--field-selector", f"spec.driver={dice.DRIVER}")


@pytest.fixture
def players(cluster: Cluster, node: WorkerNode) -> Iterator[Players]:
    made: list[Player] = []

    def make() -> Player:
        made.append(Player(cluster, f"player-{uuid4().hex[:6]}"))
        return made[-1]

    yield make
    if made:
        with running(cluster, node):  # without a driver they could not end
            for player in made:
                player.clean_up()


def until(what: str, true: Callable[[], object], *, limit_s: float = 60) -> None:
    wait_for(what, lambda: None if true() else "not yet", limit_s=limit_s)


def test_a_pod_sees_what_its_dice_show_until_it_ends(cluster: Cluster, node: WorkerNode, players: Players) -> None:
    with running(cluster, node):
        player = players()
        player.wait_running()
        shown = {key: value for key, value in player.environment().items() if key.startswith("DIE_")}
        assert len(shown) == 2
        assert all(re.fullmatch("[1-6]", value) for value in shown.values())
        assert len(specs(node)) == 1
        player.delete()
        assert not specs(node)


def test_slices_come_back_after_kubelet_has_deleted_them_at_its_start(
    cluster: Cluster, node: WorkerNode, players: Players
) -> None:
    with running(cluster, node):
        until("no slices", lambda: slices(cluster))
        before = slices(cluster)
        node.restart_kubelet()
        until("kubelet has not deleted the slices", lambda: not before.keys() & slices(cluster).keys())
        until("the slices are not back", lambda: list(slices(cluster).values()) == list(before.values()), limit_s=20)
        player = players()
        player.wait_running()


def test_slices_deleted_by_hand_come_back(cluster: Cluster, node: WorkerNode) -> None:
    with running(cluster, node):
        until("no slices", lambda: slices(cluster))
        before = slices(cluster)
        cluster.kubectl("delete", "resourceslices", "--field-selector", f"spec.driver={dice.DRIVER}")
        until("the slices are not back", lambda: list(slices(cluster).values()) == list(before.values()), limit_s=20)
        assert not before.keys() & slices(cluster).keys()


def test_an_update_runs_beside_the_old_instance_and_takes_over_without_a_gap(
    cluster: Cluster, node: WorkerNode, players: Players
) -> None:
    with running(cluster, node, pod_uid=str(uuid4())) as old:
        first = players()
        first.wait_running()
        with running(cluster, node, dice=5, pod_uid=str(uuid4())) as new:
            registry = node.run("ls", str(dice.REGISTRY)).split()
            assert {old.socket, new.socket} <= set(registry)
            second = players()
            second.wait_running()
            assert [len(names) for names in slices(cluster).values()] == [4], "the older one publishes until it ends"
            old.stop()
            until("the new one does not publish", lambda: [len(names) for names in slices(cluster).values()] == [5])
            first.delete()
            third = players()
            third.wait_running()
            assert len(specs(node)) == 2


def test_a_killed_driver_goes_on_where_it_was(cluster: Cluster, node: WorkerNode, players: Players) -> None:
    with running(cluster, node) as driver:
        player = players()
        player.wait_running()
        driver.stop(signal.SIGKILL)
        player.delete(wait=False)
        assert player.pod, "without a driver nothing is unprepared"
    with running(cluster, node):
        until("the pod does not end", lambda: not player.pod)
        assert not specs(node)


def test_a_pod_that_waits_for_a_driver_starts_when_it_comes(
    cluster: Cluster, node: WorkerNode, players: Players
) -> None:
    driver = Dice(cluster, node)
    try:
        driver.wait_registered()
        until("no slices", lambda: slices(cluster))
    finally:
        driver.stop()
    player = players()
    until("the pod is not placed", lambda: player.pod["spec"].get("nodeName") == node.name)
    with running(cluster, node):
        player.wait_running()


METADATA = f"var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/dice/dice/{DRIVER}-metadata.json"


def test_a_container_finds_what_its_dice_are_and_its_pod_shows_how_they_are(
    cluster: Cluster, node: WorkerNode, players: Players
) -> None:
    with running(cluster, node, dice=2, program=DESCRIBED) as driver:
        player = players()
        player.wait_running()
        for line in player.read(METADATA).splitlines():
            found = json.loads(line)
            assert found["kind"] == "DeviceMetadata"
            (request,) = found["requests"]
            described = {each["name"]: each["attributes"] for each in request["devices"]}
            assert described == {"die-0": {"sides": {"int": 6}}, "die-1": {"sides": {"int": 6}}}
        until("the pod does not show it", lambda: [each for each, _ in player.health().values()] == ["Healthy"] * 2)
        driver.send(signal.SIGUSR1)
        until(
            "the pod does not show that one is ill",
            lambda: ("Unhealthy", "its corners are worn") in player.health().values(),
        )
        assert sorted(each for each, _ in player.health().values()) == ["Healthy", "Unhealthy"]
        player.delete()
        assert not specs(node)


def test_the_example_s_daemon_set_serves_every_node(cluster: Cluster, node: WorkerNode, players: Players) -> None:
    made = list(yaml.safe_load_all((dice.EXAMPLE / "daemonset.yaml").read_text()))
    program = {"driver.py": dice.PROGRAM.read_text()}
    made.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "dice", "namespace": "kube-system"}})
    made[-1]["data"] = program
    (daemons,) = [each for each in made if each["kind"] == "DaemonSet"]
    pod = daemons["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    container |= {"image": IMAGE, "imagePullPolicy": "Never", "workingDir": "/driver"}  # instead of its own image
    container["securityContext"] = {"runAsUser": 0}
    container["volumeMounts"].append({"name": "driver", "mountPath": "/driver"})
    pod["volumes"].append({"name": "driver", "configMap": {"name": "dice"}})
    given = yaml.safe_dump_all(made)
    cluster.kubectl("apply", "-f", "-", given=given)
    try:
        cluster.kubectl("rollout", "status", "daemonset/dice", "--namespace=kube-system", "--timeout=90s", limit_s=100)
        until("not every node has slices", lambda: len(slices(cluster)) == len(cluster.nodes))
        player = players()
        player.wait_running()
        assert len([key for key in player.environment() if key.startswith("DIE_")]) == 2
        player.delete()
    finally:
        cluster.kubectl("delete", "-f", "-", "--wait=true", given=given, limit_s=90)
