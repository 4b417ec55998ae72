"""Metrics of both daemons, read as Prometheus reads them, tell what the jobs did."""

from __future__ import annotations

import pytest
from installation import DRIVER, Installation
from kube_cluster import Cluster
from manifests import MIB, short_job
from metrics import Figures, figure, figures
from reading import SLICES, objects
from sharing import Groups
from team import Team

pytestmark = pytest.mark.timeout(300)

NODE = "node-a"
JOBS = ("a", "b")
PHASES, PHASE_S, SIZE = 4, 0.5, 16 * MIB
TURNS = len(JOBS) * (1 + PHASES)  # the first one takes the memory
STEPS = ("lock", "checkpoint", "restore", "unlock")


def test_what_jobs_did_is_in_the_figures_of_the_node_and_of_the_orchestrator(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    def node() -> Figures:
        return figures(cluster, installed.node_pods()[NODE])

    def steps(found: Figures) -> dict[str, float]:
        return {step: figure(found, "timeslice_node_step_seconds_count", step=step) for step in STEPS}

    group, before = groups.create(node=NODE), node()
    team.apply(
        *(made for name in JOBS for made in short_job(name, group=group, phases=PHASES, phase_s=PHASE_S, size=SIZE))
    )
    team.wait_succeeded(*JOBS)
    after, leader = node(), figures(cluster, installed.orchestrator_pods()[installed.leader()])

    handed = figure(leader, "timeslice_handoff_seconds_count", group=group)
    assert handed >= 2, "they took turns"
    moved = {step: count - steps(before)[step] for step, count in steps(after).items()}
    assert all(count >= 2 for count in moved.values()), moved
    for place, name, labels in (
        (leader, "timeslice_parked_bytes_total", {"group": group}),
        (leader, "timeslice_restored_bytes_total", {"group": group}),
        (after, "timeslice_node_parked_bytes_total", {}),
        (after, "timeslice_node_restored_bytes_total", {}),
    ):
        assert figure(place, name, **labels) >= 2 * SIZE, name
    assert figure(leader, "timeslice_grants_total", group=group) == TURNS
    assert figure(leader, "timeslice_wait_seconds_count", group=group) == TURNS
    assert figure(leader, "timeslice_hold_seconds_count", group=group) == TURNS
    assert figure(leader, "timeslice_hold_seconds_sum", group=group) >= len(JOBS) * PHASES * PHASE_S
    assert figure(leader, "timeslice_leader") == 1


def test_a_node_tells_how_many_slices_it_publishes_and_claims_it_has_prepared(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    group = groups.create(node=NODE)
    team.apply(*short_job("a", group=group, phases=20))
    team.wait_said("a", "begun")
    found = figures(cluster, installed.node_pods()[NODE])
    slices = objects(cluster, SLICES, fields=f"spec.driver={DRIVER},spec.nodeName={NODE}")
    assert figure(found, "timeslice_resource_slices_published") == len(slices)
    assert figure(found, "timeslice_claims_prepared") == len(team.claims())
    assert figure(found, "timeslice_node_orchestrator_connected") == 1
    leader = figures(cluster, installed.orchestrator_pods()[installed.leader()])
    assert 0 < figure(leader, "timeslice_duty_cycle_ratio", group=group) <= 1
    assert figure(leader, "timeslice_group_devices", group=group) == 1


def test_a_replica_that_stands_by_says_that_it_does_not_lead(cluster: Cluster, installed: Installation) -> None:
    leader = installed.leader()
    pods = installed.orchestrator_pods()
    assert leader
    assert {name: figure(figures(cluster, pod), "timeslice_leader") for name, pod in pods.items()} == {
        name: float(name == leader) for name in pods
    }
