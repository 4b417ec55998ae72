from __future__ import annotations

from pathlib import Path

import pytest
from timeslice_driver.cgroup import CgroupFs, HeadRoom, PodsDisagreeError, parse, pod_uids

UID = "1a2b3c4d-0000-4111-8222-333344445555"
FLAT = UID.replace("-", "_")
OTHER = "99999999-0000-4111-8222-333344445555"
STATIC = "0123456789abcdef0123456789abcdef"
ID = "f" * 64

LAYOUTS = {
    "cgroupfs, v2, burstable": f"0::/kubepods/burstable/pod{UID}/{ID}",
    "cgroupfs, v2, guaranteed": f"0::/kubepods/pod{UID}/{ID}",
    "cgroupfs, v2, best effort": f"0::/kubepods/besteffort/pod{UID}/{ID}",
    "cgroupfs, v1": f"11:memory:/kubepods/burstable/pod{UID}/{ID}\n4:pids:/kubepods/burstable/pod{UID}/{ID}",
    "systemd, containerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/cri-containerd-{ID}.scope"
    ),
    "systemd, guaranteed": f"0::/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope",
    "systemd, best effort": (
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{FLAT}.slice/cri-containerd-{ID}.scope"
    ),
    "systemd, CRI-O": f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/crio-{ID}.scope",
    "systemd, CRI-O with a child": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/crio-{ID}.scope/container"
    ),
    "systemd, cri-dockerd": (
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/docker-{ID}.scope"
    ),
    "systemd, v1": (
        f"9:name=systemd:/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope\n"
        f"4:memory:/kubepods.slice/kubepods-pod{FLAT}.slice/cri-containerd-{ID}.scope\n"
        "3:cpuset:/"
    ),
    "hybrid": (
        f"4:memory:/kubepods/burstable/pod{UID}/{ID}\n1:name=systemd:/kubepods/burstable/pod{UID}/{ID}\n"
        f"0::/kubepods/burstable/pod{UID}/{ID}"
    ),
    "hybrid with an empty unified hierarchy": f"4:memory:/kubepods/burstable/pod{UID}/{ID}\n0::/",
    "kind": (
        "0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
        f"kubelet-kubepods-burstable-pod{FLAT}.slice/cri-containerd-{ID}.scope"
    ),
    "kind in a docker container": f"0::/system.slice/docker-{ID}.scope/kubelet/kubepods/burstable/pod{UID}/{ID}",
    "colons, where the drivers of kubelet and runtime differ": (
        f"0::/system.slice/containerd.service/kubepods-burstable-pod{FLAT}.slice:cri-containerd:{ID}"
    ),
    "seen from another cgroup namespace": f"0::/../../kubepods/burstable/pod{UID}/{ID}",
}


@pytest.mark.parametrize("text", LAYOUTS.values(), ids=LAYOUTS.keys())
def test_the_pod_of_a_process_is_found_in_every_layout(text: str) -> None:
    assert pod_uids(text) == (UID,)


@pytest.mark.parametrize(
    "text",
    [
        f"0::/kubepods/burstable/pod{STATIC}/{ID}",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice/cri-containerd-{ID}.scope",
    ],
)
def test_a_static_pod_is_named_by_the_hash_of_its_manifest(text: str) -> None:
    assert pod_uids(text) == (STATIC,)


def test_a_nested_cluster_has_the_outer_pod_first() -> None:
    outer = f"/kubepods/burstable/pod{UID}/{ID}"
    assert pod_uids(f"0::{outer}/kubelet/kubepods/besteffort/pod{OTHER}/{ID}") == (UID, OTHER)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-2.scope",
        f"0::/system.slice/docker-{ID}.scope",
        f"0::/kubepods/burstable/not-a-pod{UID}/{ID}",
        f"0::/home/pod{UID}",  # looks like a pod, outside any kubelet's cgroups
        f"0::/kubepods/burstable/podium-{UID}x/{ID}",
        f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{FLAT}.slice/crio-conmon-{ID}.scope",
        "garbage",
        "1:memory",
    ],
)
def test_a_process_outside_of_pods_has_none(text: str) -> None:
    assert pod_uids(text) == ()


def test_hierarchies_that_disagree_are_an_error_that_names_both() -> None:
    with pytest.raises(PodsDisagreeError, match=f"{UID} and {OTHER}"):
        pod_uids(f"4:memory:/kubepods/pod{UID}/{ID}\n3:pids:/kubepods/pod{OTHER}/{ID}")


def test_controllers_that_share_a_hierarchy_share_its_path() -> None:
    membership = parse("2:cpu,cpuacct:/a\n4:memory:/b:c\n0::/u")
    assert membership.controllers == {"cpu": "/a", "cpuacct": "/a", "memory": "/b:c"}
    assert (membership.memory, membership.freezer, membership.unified) == ("/b:c", None, "/u")


def make(root: Path, files: dict[str, str]) -> CgroupFs:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content + "\n")
    return CgroupFs(root)


def test_under_v2_every_ancestor_with_a_limit_binds_and_droppable_cache_counts_as_free(tmp_path: Path) -> None:
    cgroups = make(
        tmp_path,
        {
            "cgroup.controllers": "memory",
            "pods/memory.max": "1000",
            "pods/memory.current": "700",
            "pods/memory.stat": "anon 500\ninactive_file 100",
            "pods/job/memory.max": "max",
            "pods/job/memory.current": "300",
            "pods/job/main/memory.max": "400",
            "pods/job/main/memory.current": "300",
        },
    )
    assert cgroups.version == "v2"
    rooms = cgroups.head_rooms("0::/pods/job/main")
    assert rooms == (
        HeadRoom(str(tmp_path / "pods/job/main"), limit=400, used=300),
        HeadRoom(str(tmp_path / "pods"), limit=1000, used=600),
    )
    assert [room.free for room in rooms] == [100, 400]


def test_under_v1_the_greatest_number_means_no_limit(tmp_path: Path) -> None:
    cgroups = make(
        tmp_path,
        {
            "memory/memory.limit_in_bytes": "9223372036854771712",
            "memory/memory.usage_in_bytes": "5",
            "memory/job/memory.limit_in_bytes": "1000",
            "memory/job/memory.usage_in_bytes": "700",
            "memory/job/memory.stat": "total_inactive_file 50\ninactive_file 7",
        },
    )
    assert cgroups.version == "v1"
    assert cgroups.head_rooms("4:memory:/job") == (HeadRoom(str(tmp_path / "memory/job"), limit=1000, used=650),)


def test_in_hybrid_mode_memory_is_counted_by_v1(tmp_path: Path) -> None:
    cgroups = make(
        tmp_path,
        {
            "unified/cgroup.procs": "",
            "memory/job/memory.limit_in_bytes": "1000",
            "memory/job/memory.usage_in_bytes": "10",
        },
    )
    assert cgroups.version == "hybrid"
    assert [room.limit for room in cgroups.head_rooms("4:memory:/job\n0::/other")] == [1000]


def test_limits_are_found_from_a_container_whose_cgroup_namespace_begins_at_its_own_cgroup(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory")
    own, other = tmp_path / "kubepods/podA/c1", tmp_path / "kubepods/podB/c2"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "memory.max").write_text("1000")
        (folder / "memory.current").write_text("400")
        (folder / "cgroup.procs").write_text("1\n")
    (own / "cgroup.procs").write_text("41\n42\n")
    (other.parent / "memory.max").write_text("900")
    (other.parent / "memory.current").write_text("300")
    cgroups = CgroupFs(tmp_path, pid=42)
    assert [room.path for room in cgroups.head_rooms("0::/../../podB/c2")] == [str(other), str(other.parent)]
    assert cgroups.head_rooms("0::/../../../../../../etc") == ()  # never above the mount
    assert CgroupFs(tmp_path, pid=7).head_rooms("0::/../../podB/c2") == ()  # where it is cannot be told


def test_a_cgroup_that_cannot_be_seen_leaves_its_visible_ancestors(tmp_path: Path) -> None:
    cgroups = make(tmp_path, {"cgroup.controllers": "", "memory.max": "9", "memory.current": "1"})
    assert [room.limit for room in cgroups.head_rooms("0::/not/here")] == [9]


def test_a_cgroup_that_is_over_its_limit_has_nothing_free() -> None:
    assert HeadRoom("/x", limit=5, used=9).free == 0


@pytest.mark.parametrize(
    ("files", "text", "frozen"),
    [
        ({"cgroup.controllers": "", "a/b/cgroup.freeze": "1"}, "0::/a/b", "a/b"),
        ({"cgroup.controllers": "", "a/cgroup.freeze": "1", "a/b/cgroup.freeze": "0"}, "0::/a/b", "a"),
        ({"cgroup.controllers": "", "a/cgroup.events": "populated 1\nfrozen 1"}, "0::/a", "a"),
        ({"cgroup.controllers": "", "a/cgroup.events": "populated 1\nfrozen 0"}, "0::/a", None),
        ({"memory/x": "", "freezer/a/freezer.state": "FROZEN"}, "7:freezer:/a", "freezer/a"),
        ({"memory/x": "", "freezer/a/freezer.state": "FREEZING"}, "7:freezer:/a", "freezer/a"),
        ({"memory/x": "", "freezer/a/freezer.state": "THAWED"}, "7:freezer:/a", None),
        ({"memory/x": "", "unified/a/cgroup.freeze": "1"}, "4:memory:/b\n0::/a", "unified/a"),
        ({}, "0::/a", None),
    ],
)
def test_a_frozen_cgroup_or_ancestor_is_named(
    tmp_path: Path, files: dict[str, str], text: str, frozen: str | None
) -> None:
    assert make(tmp_path, files).frozen(text) == (frozen and str(tmp_path / frozen))


def test_a_machine_without_cgroups_has_no_limits(tmp_path: Path) -> None:
    cgroups = CgroupFs(tmp_path / "nothing")
    assert cgroups.version == "none"
    assert cgroups.head_rooms("0::/a") == ()
