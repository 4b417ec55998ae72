from __future__ import annotations

import asyncio
import errno
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from timeslice_api.errors import JournalCorrupt
from timeslice_driver.backends.base import TargetState
from timeslice_driver.fencing import Watermark
from timeslice_driver.journal import Journal, JournalWriteError, Record, covers, decode, encode
from timeslice_driver.parts import Held, Member, Part
from timeslice_driver.processes import ProcessId

P = ProcessId(4711, 99)
HELD = Held(P, TargetState.CHECKPOINTED, {"GPU-0": 12, "GPU-1": -1}, job_file="/proc/1/fd/3", spoilt=True)
PART = Part(Member("a", "g"), ("GPU-0", "GPU-1"), roots=frozenset({P}), held={P: HELD}, room={"GPU-0": 5})
RECORD = Record("boot-1", Watermark(3, 4, 5), (PART,))


class Desk:
    """Holds what a journal writes."""

    def __init__(self, folder: Path, record: Record = RECORD) -> None:
        self.record = record
        self.journal = Journal(folder, lambda: self.record)


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode(encode(RECORD)) == RECORD


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[: len(data) // 2],
        lambda data: data[:-10],
        lambda data: data.replace(b"4711", b"4712"),
        lambda data: b"\0" * len(data),
        lambda data: b"{}\n{}\n",
        lambda data: b"[]\n[]\n",
        lambda data: b"\xff\xfe" + data,
        lambda data: data.replace(b'"version": 1', b'"version": 2'),
    ],
    ids=["empty", "half", "cut", "changed", "zeros", "no header", "lists", "binary", "newer"],
)
async def test_a_file_that_cannot_be_read_is_kept_aside_and_named(tmp_path: Path, damage: object) -> None:
    desk = Desk(tmp_path)
    damaged = damage(encode(RECORD))  # type: ignore[operator]
    for number in (1, 2):
        desk.journal.path.write_bytes(damaged)
        with pytest.raises(JournalCorrupt, match="cannot be read") as error:
            desk.journal.load()
        aside = tmp_path / f"journal.json.corrupt-{number}"
        assert aside.name in error.value.hint
        assert aside.read_bytes() == damaged
        assert desk.journal.load() is None


async def test_a_flush_leaves_one_whole_file(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.journal.flush()
    assert desk.journal.load() == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["journal.json"]


async def test_flushes_that_come_together_share_a_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    desk, writes = Desk(tmp_path), []
    write = desk.journal._write
    monkeypatch.setattr(desk.journal, "_write", lambda data: (writes.append(data), write(data)))
    await asyncio.gather(*(desk.journal.flush() for _ in range(20)))
    assert len(writes) == 1


async def test_securing_waits_for_the_disk_only_when_a_process_is_new(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.journal.secure()
    assert desk.journal.load() == RECORD
    desk.record = replace(RECORD, watermark=Watermark(3, 5, 5))
    await desk.journal.secure()
    assert desk.journal.load() == RECORD  # not yet
    await desk.journal.close()
    assert desk.journal.load() == desk.record


@pytest.mark.parametrize(
    ("present", "covered"),
    [
        (RECORD, True),
        (replace(RECORD, parts=()), True),
        (replace(RECORD, watermark=Watermark(9, 9, 9)), True),
        (replace(RECORD, parts=(replace(PART, held={P: replace(HELD, state=TargetState.RUNNING)}),)), True),
        (replace(RECORD, parts=(replace(PART, held={}),)), True),
        (replace(RECORD, boot_id="boot-2"), False),
        (replace(RECORD, parts=(replace(PART, device_ids=("GPU-0",)),)), False),
        (replace(RECORD, parts=(replace(PART, roots=frozenset({P, ProcessId(2, 2)})),)), False),
        (replace(RECORD, parts=(replace(PART, held={ProcessId(2, 2): HELD}),)), False),
        (replace(RECORD, parts=(replace(PART, held={P: replace(HELD, sizes={"GPU-0": 13})}),)), False),
        (replace(RECORD, parts=(replace(PART, member=Member("b", "g")),)), False),
    ],
)
def test_what_only_a_journal_can_tell_must_be_in_it(present: Record, covered: bool) -> None:
    assert covers(RECORD, present) is covered


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.ENOSPC, "JournalFull"), (errno.EDQUOT, "JournalFull"), (errno.EROFS, "JournalUnwritable")],
)
async def test_a_write_that_fails_is_named_and_leaves_the_record_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, reason: str
) -> None:
    desk = Desk(tmp_path)
    await desk.journal.flush()
    desk.record = replace(RECORD, parts=())

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("timeslice_driver.whole_files.os.fsync", fail)
    with pytest.raises(JournalWriteError) as error:
        await desk.journal.flush()
    assert error.value.fault.reason == reason
    assert error.value.fault.retryable
    assert str(tmp_path) in error.value.fault.hint
    assert desk.journal.load() == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["journal.json"]
    monkeypatch.undo()
    await desk.journal.flush()
    assert desk.journal.load() == desk.record


async def test_what_a_write_that_was_cut_short_left_goes_at_the_next_start(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    await desk.journal.flush()
    (tmp_path / ".journal.json.4711.tmp").write_bytes(encode(RECORD)[:100])
    assert desk.journal.load() == RECORD
    assert [path.name for path in tmp_path.iterdir()] == ["journal.json"]


async def test_a_folder_that_has_gone_is_named(tmp_path: Path) -> None:
    desk = Desk(tmp_path / "gone")
    with pytest.raises(JournalWriteError, match="No such file"):
        await desk.journal.flush()
    await desk.journal.close()  # logs, and does not fail


def test_the_file_is_readable_for_people(tmp_path: Path) -> None:
    header, body = encode(RECORD).splitlines()
    assert json.loads(header)["format"] == "timeslice node journal"
    assert json.loads(body)["parts"][0]["held"][0]["pid"] == 4711
