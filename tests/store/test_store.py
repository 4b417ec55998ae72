"""What is written is there after a restart; what cannot be read is kept aside; what cannot be written is told."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest
from stored_records import LEASE, RECORDS
from timeslice_api.errors import ConfigError, StoreFailed
from timeslice_orchestrator.core.model import CounterRecord, RequestRecord
from timeslice_orchestrator.store import SqliteStore, StoredRecord


def reopened(store: SqliteStore) -> SqliteStore:
    store.close()
    return SqliteStore.open(store.path)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.sqlite3"


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_each_kind_of_record_comes_back_as_it_was_written(path: Path, record: StoredRecord) -> None:
    store = SqliteStore.open(path)
    store.write([record])
    store = reopened(store)
    assert store.records == [record]
    store.close()


def test_a_record_with_the_same_key_is_replaced_and_a_dropped_one_is_gone(path: Path) -> None:
    store = SqliteStore.open(path)
    store.write([CounterRecord(1, 1), LEASE])
    store.write([CounterRecord(2, 5)], [LEASE])
    store = reopened(store)
    assert store.records == [CounterRecord(2, 5)]
    store.close()


def test_dropping_what_is_not_there_is_no_error(path: Path) -> None:
    store = SqliteStore.open(path)
    store.write([], [LEASE])
    assert reopened(store).records == []


def test_what_was_written_survives_a_process_that_never_closed_the_file(path: Path) -> None:
    store = SqliteStore.open(path)
    store.write([LEASE])
    # another connection sees what is in the log, as a successor after kill -9 would
    successor = SqliteStore.open(path)
    assert successor.records == [LEASE]
    assert successor.epoch == store.epoch + 1
    successor.close()


def test_the_epoch_is_higher_at_each_opening(path: Path) -> None:
    epochs = []
    for _ in range(3):
        store = SqliteStore.open(path)
        epochs.append(store.epoch)
        store.close()
    assert epochs == [1, 2, 3]


def test_the_epoch_goes_above_what_a_node_has_seen_and_stays_there(path: Path) -> None:
    store = SqliteStore.open(path)
    store.raise_epoch(41)
    assert store.epoch == 42
    assert reopened(store).epoch == 43


def test_a_file_that_is_no_database_is_kept_aside_and_named(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path.write_bytes(b"this is not a database, and never was one" * 50)
    with caplog.at_level(logging.ERROR):
        store = SqliteStore.open(path)
    assert (store.records, store.epoch) == ([], 1)
    aside = path.with_name("state.sqlite3.corrupt-1")
    assert aside.read_bytes().startswith(b"this is not")
    (line,) = caplog.messages
    assert str(aside) in line
    store.close()


def test_a_second_corrupt_file_does_not_overwrite_the_first(path: Path) -> None:
    for content in (b"one" * 500, b"two" * 500):
        path.write_bytes(content)
        SqliteStore.open(path).close()
    assert path.with_name("state.sqlite3.corrupt-1").read_bytes().startswith(b"one")
    assert path.with_name("state.sqlite3.corrupt-2").read_bytes().startswith(b"two")


def test_a_database_with_a_torn_page_is_kept_aside(path: Path) -> None:
    store = SqliteStore.open(path)
    store.write([RequestRecord(f"r{number}", "job-a", ("g1",), number, "x" * 200) for number in range(500)])
    store.close()
    content = bytearray(path.read_bytes())
    content[8192:12288] = b"\xa5" * 4096
    path.write_bytes(content)
    store = SqliteStore.open(path)
    assert store.records == []
    assert path.with_name("state.sqlite3.corrupt-1").exists()
    store.close()


@pytest.mark.parametrize("body", ["{", "[]", '{"group_id": 1, "colour": 2}'])
def test_a_row_that_makes_no_sense_counts_as_corruption(path: Path, body: str) -> None:
    SqliteStore.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO record VALUES ('drain', 'g1', 1, ?)", (body,))
    raw.close()
    assert SqliteStore.open(path).records == []
    assert path.with_name("state.sqlite3.corrupt-1").exists()


def test_a_row_of_a_newer_version_is_refused_and_left_alone(path: Path) -> None:
    SqliteStore.open(path).close()
    with sqlite3.connect(path) as raw:
        raw.execute("INSERT INTO record VALUES ('drain', 'g1', 99, '{}')")
    raw.close()
    with pytest.raises(ConfigError, match="version 99"):
        SqliteStore.open(path)
    assert list(path.parent.glob("*.corrupt-*")) == []


def test_a_file_that_another_program_has_locked_is_told_as_such(path: Path) -> None:
    store = SqliteStore.open(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreFailed, match="locked"):
        store.write([LEASE])
    other.execute("ROLLBACK")
    other.close()
    store.write([LEASE])
    assert reopened(store).records == [LEASE]


def test_a_state_directory_that_is_missing_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="unable to open"):
        SqliteStore.open(tmp_path / "missing" / "state.sqlite3")
