"""RL jobs as pods take turns on the GPUs of the cluster, and nothing of them is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from alone import Training, fingerprints
from installation import DRIVER, NAMESPACE, Installation
from kube_cluster import Cluster
from manifests import pod, running, sleeper, template
from rank_manifests import as_rank, key_of_ranks, service
from reading import SLICES, Object, objects
from sharing import Groups
from team import Team
from waits import SOON_S, START_S, true, until

pytestmark = pytest.mark.timeout(600)

JOBS = {"job-a": Training("gcd", 23), "job-b": Training("count_bits", 5)}
JOBS_S = 300.0
MIB = 1 << 20


SEES = """
import ctypes

cuda, count, uuid = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), (ctypes.c_ubyte * 16)()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(count)) == 0 and cuda.cuDeviceGetUuid(uuid, 0) == 0
print(count.value, bytes(uuid).hex())
"""


@pytest.mark.smoke
def test_jobs_that_share_a_gpu_train_the_same_weights_as_alone_though_the_plugin_restarts_meanwhile(
    cluster: Cluster, installed: Installation, groups: Groups, team: Team
) -> None:
    group = groups.create(node="node-a")
    team.apply(*(made for name, job in JOBS.items() for made in job.manifests(name, group=group)))
    team.wait_running(*JOBS)
    assert team.wait_devices("job-a") == team.wait_devices("job-b"), "they share one GPU"
    for name in JOBS:
        team.wait_said(name, '"event": "loaded"', limit_s=JOBS_S)
    restart_plugin(cluster, installed, "node-a")
    team.wait_succeeded(*JOBS, limit_s=JOBS_S)
    installed.wait_ready()
    assert {name: fingerprints(team.logs(name)) for name in JOBS} == {name: job.alone() for name, job in JOBS.items()}


def test_while_jobs_share_a_gpu_kubectl_shows_who_holds_it_and_how_busy_it_is(groups: Groups, team: Team) -> None:
    group = groups.create(node="node-a")
    idle = {"HOLDER": "", "WAITING": "0", "DEVICES": "0"}
    until("a new group is not shown as idle", true(lambda: groups.row(group).items() >= idle.items()))
    team.apply(*(made for name in JOBS for made in job(name, group=group, phases=12)))
    team.wait_said("job-a", "phase 0")
    team.wait_said("job-b", "phase 0")

    seen: list[dict[str, str]] = []

    def missing() -> str | None:
        seen.append(groups.row(group))
        holders, waiting = {row["HOLDER"] for row in seen}, {row["WAITING"] for row in seen}
        return None if holders >= set(JOBS) and "1" in waiting else f"{seen[-5:]}"

    until("kubectl has not shown both", missing, limit_s=SOON_S)
    assert {row["DEVICES"] for row in seen} == {"1"}
    assert all(row["HOLDER"] in ("", *JOBS) for row in seen)
    assert 0 < int(seen[-1]["DUTY"].removesuffix("%")) <= 100
    members = {member["job"]: member["nodes"] for member in groups.status(group)["members"]}
    assert members == {"job-a": ["node-a"], "job-b": ["node-a"]}
    team.wait_succeeded(*JOBS, limit_s=JOBS_S)
    until("jobs that have ended are still shown", true(lambda: groups.row(group)["DEVICES"] == "0"))


def test_a_job_that_spans_both_nodes_takes_turns_with_one_that_has_a_gpu_of_one_of_them(
    groups: Groups, team: Team, tmp_path: Path
) -> None:
    group = groups.create()
    names = ["wide-0", "wide-1", "narrow"]
    team.apply(service("wide-0"), key_of_ranks(tmp_path))
    team.apply(
        *job("wide-0", job="wide", group=group, node="node-a", rank=0, of=2),
        *job("wide-1", job="wide", group=group, node="node-b", rank=1, of=2),
        *job("narrow", group=group, node="node-b"),
    )
    team.wait_running(*names)
    assert {device.partition("/")[0] for name in names[:2] for device in team.wait_devices(name)} == {
        "node-a",
        "node-b",
    }
    assert team.wait_devices("narrow") == team.devices("wide-1"), "they share one GPU"
    until(
        "the group does not know of both nodes",
        lambda: None if nodes(groups, group) == {"wide": {"node-a", "node-b"}, "narrow": {"node-b"}} else "no",
    )
    assert groups.row(group)["DEVICES"] == "2"
    team.wait_succeeded(*names, limit_s=JOBS_S)

    ranks = [phases(team, name) for name in names[:2]]
    assert len(ranks[0]) == len(ranks[1]) == len(phases(team, "narrow"))
    wide = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in zip(*ranks, strict=True)]
    assert all(begin < end for begin, end in wide), "both ranks have a phase at the same time"
    turns = sorted([(begin, end) for rank in ranks for begin, end in rank] + phases(team, "narrow"))
    narrow = set(phases(team, "narrow"))
    for begin, end in narrow:
        assert not [turn for turn in turns if turn not in narrow and turn[0] < end and begin < turn[1]]


def test_a_container_sees_the_gpus_of_its_claim_and_no_others(cluster: Cluster, groups: Groups, team: Team) -> None:
    group = groups.create(node="node-a")
    team.apply(*sleeper("other", group=group))
    team.wait_running("other")
    made = running(pod("one", claim_template="one"), "python3", "-c", f"{SEES}\nimport time; time.sleep(600)")
    team.apply(template("one", job="other", group=group), made)  # of the same job, so that it gets another GPU
    team.wait_said("one", "1 ")
    (device,) = team.devices("one")
    uuid = uuid_of(cluster, device)
    assert team.logs("one").split() == ["1", uuid.removeprefix("GPU-").replace("-", "")]
    assert uuid != uuid_of(cluster, *team.devices("other"))


def restart_plugin(cluster: Cluster, installed: Installation, node: str) -> None:
    """Deletes the node's pod; another one is there on return."""
    old = installed.node_pods()[node]["metadata"]
    cluster.kubectl("delete", "pod", f"--namespace={NAMESPACE}", old["name"], "--wait=false")

    def replaced() -> bool:
        pods = installed.node_pods()
        return node in pods and pods[node]["metadata"]["uid"] != old["uid"]

    until("there is no other pod", true(replaced), limit_s=START_S)


def job(
    name: str, *, group: str, job: str = "", node: str = "", rank: int = 0, of: int = 1, phases: int = 4
) -> list[Object]:
    """Template and pod of a rank, and of how many. Rank 0 waits for the others at its name's service."""
    made = pod(name, claim_template=name, node=node, memory="256Mi")
    command = ("python3", "/programs/program_ranks.py", str(8 * MIB), str(phases), "0.5")
    started = as_rank(running(made, *command), rank, of, head="wide-0")
    return [template(name, job=job or name, group=group), started]


def uuid_of(cluster: Cluster, device: str) -> str:
    """Of the GPU that a device of the node's slices is."""
    node, _, name = device.partition("/")
    slices = objects(cluster, SLICES, fields=f"spec.driver={DRIVER},spec.nodeName={node}")
    found = [each for slice_ in slices for each in slice_["spec"].get("devices") or () if each["name"] == name]
    return str(found[0]["attributes"]["uuid"]["string"])


def nodes(groups: Groups, group: str) -> dict[str, set[str]]:
    """Where the group's jobs are."""
    return {member["job"]: set(member["nodes"]) for member in groups.status(group).get("members") or ()}


def phases(team: Team, name: str) -> list[tuple[float, float]]:
    """Begin and end of each, in seconds of the machine's monotonic clock."""
    said = [line.split() for line in team.logs(name).splitlines() if line.startswith("phase ")]
    return [(float(begin), float(end)) for _, _, begin, end in said]
