"""Which processes pods have, in trees of control groups that a pod has made in its own to deceive or to harm."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from timeslice_driver.cgroup import CgroupFs
from timeslice_driver.pods import Pods
from timeslice_driver.processes import ProcFs

OURS, THEIRS = "1a2b3c4d-0000-4111-8222-333344445555", "99999999-0000-4111-8222-333344445555"


def containing(folder: Path, *pids: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "cgroup.procs").write_text("".join(f"{pid}\n" for pid in pids))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").touch()
    return tmp_path


@pytest.mark.parametrize("theirs", ["", "a", "z"], ids=["guaranteed", "before", "after"])
def test_a_pod_that_names_a_folder_of_its_own_like_another_pod_does_not_take_its_place(root: Path, theirs: str) -> None:
    containing(root / "kubepods" / theirs / f"pod{THEIRS}" / "container" / f"pod{OURS}" / "container", 66)
    containing(root / "kubepods/burstable" / f"pod{OURS}" / "container", 1, 2)
    pods = Pods(ProcFs(), root)
    assert pods.containers(OURS) == ((1, 2),)
    assert pods.containers(THEIRS) == ((66,),)


def test_a_pod_that_nests_folders_by_the_thousand_is_looked_through_like_another(root: Path) -> None:
    container = containing(root / "kubepods" / f"pod{THEIRS}" / "container", 1)
    deepest = container
    try:
        for _ in range(1500):
            deepest /= "a"
            deepest.mkdir()
        (deepest / "cgroup.procs").write_text("2\n")
        pods = Pods(ProcFs(), root)
        assert pods.containers(OURS) == ()
        assert pods.containers(THEIRS) == ((1, 2),)
        assert CgroupFs(root, pid=7).head_rooms("0::/../x") == ()
    finally:  # pytest's own clearing up ends in a RecursionError
        (deepest / "cgroup.procs").unlink(missing_ok=True)
        while deepest != container:
            deepest.rmdir()
            deepest = deepest.parent


def test_a_path_that_is_too_long_is_no_cgroup(root: Path) -> None:
    assert CgroupFs(root).head_rooms(f"0::/{'a' * 300}") == ()
    assert CgroupFs(root).frozen(f"0::{'/a' * 2500}") is None


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028"], ids=ascii)
def test_a_cgroups_name_with_the_end_of_a_line_is_one_name(root: Path, end: str) -> None:
    frozen = root / "frozen"
    frozen.mkdir()
    (frozen / "cgroup.freeze").write_text("1")
    assert CgroupFs(root).frozen(f"0::/a{end}0::/frozen\n") is None
    assert CgroupFs(root).frozen("0::/frozen\n") == os.fspath(frozen)
