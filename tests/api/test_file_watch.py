"""A change of the file is noticed at once, in each way in which files change."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from timeslice_api import file_watch
from timeslice_api.file_watch import FileWatch


@asynccontextmanager
async def watching(path: Path) -> AsyncIterator[FileWatch]:
    watch = FileWatch(path)
    watch.open()
    yield watch
    watch.close()


def rewrite(path: Path) -> None:
    path.write_text("another text")


def replace(path: Path) -> None:
    new = path.with_name("new")
    new.write_text("one more")
    new.replace(path)


def remove(path: Path) -> None:
    path.unlink()


def swing_link(path: Path) -> None:
    """As Kubernetes updates a mounted ConfigMap: the file is a link through a folder, which is a link itself."""
    folder = path.parent / "..new"
    folder.mkdir()
    (folder / path.name).write_text("from the new folder")
    link = path.parent / "..data_tmp"
    link.symlink_to("..new")
    link.replace(path.parent / "..data")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "..old").mkdir()
    (tmp_path / "..old" / "groups.yaml").write_text("a text")
    (tmp_path / "..data").symlink_to("..old")
    path = tmp_path / "groups.yaml"
    path.symlink_to("..data/groups.yaml")
    return path


@pytest.mark.parametrize("change", [replace, remove, swing_link])
async def test_a_change_wakes_the_watcher(path: Path, change: Callable[[Path], None]) -> None:
    async with watching(path) as watch, asyncio.timeout(2):
        change(path)
        await watch.changed()


async def test_writing_a_file_in_place_wakes_the_watcher(tmp_path: Path) -> None:
    path = tmp_path / "groups.yaml"
    path.write_text("a text")
    async with watching(path) as watch, asyncio.timeout(2):
        rewrite(path)
        await watch.changed()


async def test_a_file_that_comes_back_wakes_the_watcher_again(path: Path) -> None:
    async with watching(path) as watch, asyncio.timeout(2):
        remove(path)
        await watch.changed()
        replace(path)
        await watch.changed()


async def test_other_files_in_the_folder_wake_nobody(path: Path) -> None:
    async with watching(path) as watch:
        (path.parent / "other").write_text("x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.changed(), 0.2)


async def test_without_inotify_the_file_is_looked_at_now_and_then(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(directory: Path) -> int:
        raise OSError(24, os.strerror(24))

    monkeypatch.setattr(file_watch, "_inotify", refused)
    monkeypatch.setattr(file_watch, "_POLL_S", 0.05)
    async with watching(path) as watch, asyncio.timeout(2):
        replace(path)
        await watch.changed()


async def test_a_watch_on_a_folder_that_is_missing_falls_back_to_looking(tmp_path: Path) -> None:
    async with watching(tmp_path / "missing" / "groups.yaml") as watch:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watch.changed(), 0.1)


async def test_a_closed_watch_leaves_no_descriptor_behind(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - /proc has no other face
    for _ in range(5):
        async with watching(path):
            pass
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
