from pathlib import Path

import pytest
from kube_cluster.cgroups import Groups, Hierarchy, membership, parse_mounts

MOUNTS = """\
proc /proc proc rw 0 0
cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0
cgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0
"""


@pytest.fixture
def first_version(tmp_path):
    """Folders in the place of two hierarchies of the first version."""
    found = [Hierarchy(tmp_path / name, frozenset({"rw", name}), unified=False) for name in ("cpuset", "pids")]
    for hierarchy in found:
        hierarchy.mount.mkdir()
    (tmp_path / "cpuset/cpuset.cpus").write_text("0-1\n")
    return found


def test_hierarchies_of_both_versions_are_found():
    found = parse_mounts(MOUNTS)
    assert [entry.mount.name for entry in found] == ["cpu", "cpuset", "pids", "unified"]
    assert found[3].unified
    assert membership(found).mount == Path("/sys/fs/cgroup/pids")
    assert membership(found[3:]).unified


def test_a_workers_group_is_in_every_hierarchy_and_the_control_planes_in_one(first_version, tmp_path):
    groups = Groups("cluster", first_version)
    groups.create("node-a", for_pods=True)
    groups.create("control-plane")
    assert (tmp_path / "cpuset/cluster/node-a").is_dir()
    assert not (tmp_path / "cpuset/cluster/control-plane").exists()
    assert groups.home("node-a") == tmp_path / "pids/cluster/node-a/system"
    assert groups.home("control-plane").is_dir()


def test_groups_are_removed_with_all_below(first_version, tmp_path):
    groups = Groups("cluster", first_version)
    groups.create("node-a", for_pods=True)
    (tmp_path / "pids/cluster/node-a/kubepods/pod1").mkdir(parents=True)
    assert groups.exists()
    groups.kill()
    groups.remove()
    assert not groups.exists()
