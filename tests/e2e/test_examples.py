"""The files of examples/kubernetes, applied as they are."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from alone import alone, fingerprints
from kube_cluster import Cluster
from reading import JOBS, Object, one
from sharing import Groups
from team import Team
from waits import START_S, true, until

pytestmark = pytest.mark.timeout(1200)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/kubernetes"
GROUP = "trainer-group"
LABEL = "timeslice.dev/pool"
DONE_S = 600.0


@pytest.fixture
def trainers(cluster: Cluster, groups: Groups) -> Iterator[str]:
    """The node whose GPUs the group of the examples has."""
    cluster.kubectl("label", "node", "node-b", f"{LABEL}=trainers")
    yield "node-b"
    groups.delete(GROUP)
    groups.wait_gone(GROUP)
    cluster.kubectl("label", "node", "node-b", f"{LABEL}-")


@pytest.fixture
def team(trainers: str, team: Team) -> Team:
    """Whose claims have gone before the group goes."""
    return team


def test_the_example_jobs_share_a_gpu_and_train_the_same_weights_as_alone(
    groups: Groups, trainers: str, team: Team
) -> None:
    team.kubectl("apply", "-f", str(EXAMPLES))
    pods = {name: pod_of(team, name) for name in ("job-a", "job-b")}
    team.wait_running(*pods.values())
    devices = {name: team.wait_devices(pod) for name, pod in pods.items()}
    assert devices["job-a"] == devices["job-b"]
    assert devices["job-a"][0].startswith(f"{trainers}/")
    until("the group has no duty cycle", true(lambda: groups.row(GROUP)["DUTY"] != "0%"), limit_s=START_S)
    for name in pods:
        until(f"{name} is not complete", lambda: missing(team, name), limit_s=DONE_S)  # noqa: B023  called before the next
    assert {name: fingerprints(team.logs(pod)) for name, pod in pods.items()} == {
        name: alone(arguments(team, pod)) for name, pod in pods.items()
    }


def pod_of(team: Team, job: str) -> str:
    """The one that runs the Job."""
    found: list[Object] = []

    def none_yet() -> str | None:
        found[:] = team.pods(f"batch.kubernetes.io/job-name={job}")
        return None if found else "none"

    until(f"job {job} has no pod", none_yet)
    return str(found[0]["metadata"]["name"])


def arguments(team: Team, pod: str) -> list[str]:
    """Of its program, as the example has them."""
    (container,) = team.pod(pod)["spec"]["containers"]
    return [str(argument) for argument in container["args"]]


def missing(team: Team, job: str) -> str | None:
    """None when the Job has succeeded; an assertion fails at once when it has failed."""
    status = one(team.cluster, JOBS, job, namespace=team.namespace)["status"]
    assert not status.get("failed"), f"{job} failed\n{team.logs(pod_of(team, job))[-3000:]}"
    return None if status.get("succeeded") else f"{status}"
