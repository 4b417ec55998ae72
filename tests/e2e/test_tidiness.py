"""hack/cluster: what an `up` that was killed has left goes with the next one, and `down` leaves nothing behind."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from kube_cluster import Cluster
from kube_cluster.settings import Settings
from waits import until

pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
UP_S = 300.0


@dataclass(frozen=True)
class Traces:
    """Of a cluster on this machine, as the kernel and the file system show them."""

    processes: frozenset[int]
    namespaces: frozenset[str]
    interfaces: frozenset[str]
    cgroups: frozenset[str]
    mounts: frozenset[str]
    files: frozenset[str]

    @property
    def none(self) -> bool:
        """Nothing is there."""
        return not any(vars(self).values())


def traces(cluster: Cluster, *, interfaces: frozenset[str]) -> Traces:
    """Those of the cluster, and what of these interfaces is there."""
    mark = f"timeslice-cluster.{cluster.name}"
    folder = str(cluster.folder.path)
    mounts = {line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()}
    return Traces(
        processes=frozenset(
            pid for pid in pids() if mark in told(pid, "cgroup") or f"{folder}/" in told(pid, "cmdline")
        ),
        namespaces=frozenset(path.name for path in Path("/run/netns").glob(f"{mark}.*")),
        interfaces=frozenset(name for name in interfaces if Path("/sys/class/net", name).exists()),
        cgroups=frozenset(map(str, [*Path("/sys/fs/cgroup").glob(mark), *Path("/sys/fs/cgroup").glob(f"*/{mark}")])),
        mounts=frozenset(mount for mount in mounts if f"{mount}/".startswith(f"{folder}/")),
        files=frozenset(str(path) for path in (cluster.folder.path, cluster.folder.lock) if path.exists()),
    )


def pids() -> Iterator[int]:
    """Of all processes."""
    return (int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit())


def told(pid: int, what: str) -> str:
    """A file of the process; empty when it has ended."""
    try:
        return Path(f"/proc/{pid}/{what}").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@pytest.fixture
def another(cluster: Cluster) -> Iterator[Cluster]:
    """A cluster beside the tests' own, which is down."""
    made = Cluster(f"{cluster.name}-tidy")
    made.down()
    yield made
    made.down()


def test_an_up_that_was_killed_leaves_nothing_to_the_next_one_and_down_leaves_nothing_at_all(another: Cluster) -> None:
    command = [str(ROOT / "hack/cluster"), "up", "--name", another.name]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        try:
            until(
                "a kubelet of it", lambda: None if another.ledger.is_alive("node-a.containerd") else "no", limit_s=UP_S
            )
        finally:
            killed.kill()
    assert not another.is_up()
    octet = Settings.load(another.folder.settings).octet
    first = traces(another, interfaces=frozenset({f"tscluster{octet}"}))
    assert first.processes
    assert first.namespaces
    assert first.interfaces
    assert first.cgroups

    another = Cluster(another.name)  # another process would see nothing of the first one's either
    assert another.up(Settings())
    interfaces = first.interfaces | {f"tscluster{another.settings.octet}"}
    second = traces(another, interfaces=interfaces)
    assert not first.processes & second.processes
    another.kubectl("get", "nodes")

    another.down()
    assert traces(another, interfaces=interfaces).none, traces(another, interfaces=interfaces)
