"""Who gets which GPU, who waits, who gets in when somebody leaves: with what users write, and pods that only sleep."""

from __future__ import annotations

import pytest
from kube_cluster import Cluster
from manifests import sleeper
from sharing import Groups
from team import Team

pytestmark = pytest.mark.timeout(300)

NODE = "node-a"
FREE = 2


@pytest.fixture(autouse=True)
def two_gpus(cluster: Cluster, groups: Groups, team: Team) -> None:
    """All but two of the node's GPUs are somebody else's."""
    others = groups.create("others", node=NODE)
    team.apply(*sleeper("somebody", group=others, count=cluster.settings.gpus - FREE))
    team.wait_devices("somebody")


def gpus(team: Team, pod: str) -> list[str]:
    """The GPUs that it gets, without the name of the group."""
    devices = team.wait_devices(pod)
    return ["-".join(device.split("-")[:4]) for device in devices]


def test_two_jobs_share_a_gpu_the_same_job_gets_another_and_another_group_waits_for_one_to_be_free(
    groups: Groups, team: Team
) -> None:
    group, other = groups.create("rl-a", node=NODE), groups.create("rl-b", node=NODE)
    team.apply(*sleeper("a1", job="job-a", group=group))
    first = gpus(team, "a1")
    team.apply(*sleeper("b1", job="job-b", group=group))
    assert gpus(team, "b1") == first, "another job shares the GPU"
    team.apply(*sleeper("a2", job="job-a", group=group))
    second = gpus(team, "a2")
    assert second != first, "never the same job twice on one GPU"
    team.apply(*sleeper("x1", job="job-a", group=other))
    team.wait_unschedulable("x1")
    team.wait_event("x1", f"group {other}: no free GPU")
    team.wait_running("a1", "b1", "a2")
    team.delete("pod", "a2")
    assert gpus(team, "x1") == second, "by itself, when the last claim of the other group has gone"
    team.wait_running("x1")


def test_claims_of_two_gpus_get_two_different_ones_and_a_job_does_not_get_them_twice(
    groups: Groups, team: Team
) -> None:
    group = groups.create("rl-a", node=NODE)
    for name, job in (("m1", "job-a"), ("m2", "job-b")):
        team.apply(*sleeper(name, job=job, group=group, count=2))
    both = gpus(team, "m1")
    assert len(set(both)) == 2
    assert gpus(team, "m2") == both
    team.apply(*sleeper("m3", job="job-b", group=group))
    team.wait_unschedulable("m3")
    team.wait_running("m1", "m2")
    team.delete("pod", "m2")
    assert gpus(team, "m3")[0] in both


def test_two_requests_of_a_claim_get_two_different_gpus(groups: Groups, team: Team) -> None:
    group = groups.create("rl-a", node=NODE)
    wanted, made = sleeper("a1", job="job-a", group=group)
    requests = wanted["spec"]["spec"]["devices"]["requests"]
    requests.append({**requests[0], "name": "judge"})
    team.apply(wanted, made)
    assert len(set(gpus(team, "a1"))) == 2


def test_no_more_jobs_than_seats_get_a_gpu(groups: Groups, team: Team) -> None:
    group = groups.create("rl-a", node=NODE, seats=1)
    for name in ("s1", "s2"):
        team.apply(*sleeper(name, group=group))
    assert gpus(team, "s1") != gpus(team, "s2")
    team.apply(*sleeper("s3", group=group))
    team.wait_unschedulable("s3")


def test_snapshots_always_fit_into_host_memory(groups: Groups, team: Team) -> None:
    group = groups.create("rl-a", node=NODE, seats=3, hostMemoryPerGPU="160Mi")
    team.apply(*sleeper("h1", group=group, host_memory="100Mi"))
    first = gpus(team, "h1")
    team.apply(*sleeper("h2", group=group, host_memory="80Mi"))
    second = gpus(team, "h2")
    assert second != first, "100 and 80 are more than 160"
    team.apply(*sleeper("h3", group=group, host_memory="60Mi"))
    assert gpus(team, "h3") == first, "it fits exactly"
    team.wait_running("h1", "h2", "h3")
    (result,) = team.claim("h3")["status"]["allocation"]["devices"]["results"]
    consumed = result["consumedCapacity"]
    assert {consumed["seats"], consumed["job_h3"], consumed["hostMemory"]} == {"1", "60Mi"}


def test_what_a_user_does_not_write_is_filled_in(groups: Groups, team: Team) -> None:
    group = groups.create("rl-a", node=NODE)
    team.apply(*sleeper("a1", job="job-a", group=group, count=2, host_memory=""))
    team.wait_devices("a1")
    claim = team.claim("a1")
    assert claim["metadata"]["labels"].items() >= {"timeslice.dev/job": "job-a", "timeslice.dev/group": group}.items()
    devices = claim["spec"]["devices"]
    (request,) = devices["requests"]
    assert request["exactly"]["capacity"]["requests"] == {"job_job_a": "1"}
    assert devices["constraints"] == [{"requests": ["gpu"], "matchAttribute": "gpu.timeslice.dev/slot"}]
