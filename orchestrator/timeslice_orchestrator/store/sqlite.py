"""One SQLite file. Every write is one transaction, and is in the file's log before `write` returns.

WAL with synchronous=NORMAL: a commit is one write() without an fsync, so it survives the death of this process, which
is what happens. On power loss of the whole machine the last commits may be missing: leases of jobs that died with the
machine are then no loss, and the floor of epoch and token comes back from the hellos of the nodes. (Measured: 60 µs for
the records of one step, 18 µs for each of five in one transaction.)

A file that another machine goes on with after this one's death (`shared`) is synced with each commit. It is locked for
good, so that its log needs no shared memory, which machines have not (https://sqlite.org/wal.html, "Use of WAL without
shared memory"), and so that a file system which took this machine's locks away fails its writes.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from timeslice_api.aside import move_aside
from timeslice_api.errors import ConfigError, StoreFailed

from timeslice_orchestrator.core.events import AcquireRequested
from timeslice_orchestrator.store.codec import VERSION, StoredRecord, decoded, encoded, row_key

_log = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS record (
  kind TEXT NOT NULL, key TEXT NOT NULL, version INTEGER NOT NULL, body TEXT NOT NULL, PRIMARY KEY (kind, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS epoch (value INTEGER NOT NULL);
INSERT INTO epoch SELECT 0 WHERE NOT EXISTS (SELECT * FROM epoch);
"""
# Moving the log into the file syncs the disk and stops the loop for 20 ms, on a busy disk for 200 (measured); with the
# default of 1,000 pages that would be every 300 hand-offs.
_CHECKPOINT_PAGES = 8_000  # 32 MB of log
_SIDE_FILES = ("", "-wal", "-shm")  # the log belongs to the file; neither is readable without the other


class SqliteStore:
    """The open file, a `Store` that answers at once; use `SqliteStore.open`.

    Attributes:
        epoch: higher than that of every opening before; durable.
        records: what the file held when it was opened.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self.path = path
        self._connection = _connection(path, shared=shared)
        try:
            self.records = _records(self._connection)
            self.epoch: int = self._connection.execute("SELECT value FROM epoch").fetchone()[0]
            self.raise_epoch(self.epoch)
        except BaseException:
            self._connection.close()
            raise

    @classmethod
    def open(cls, path: Path, *, shared: bool = False) -> SqliteStore:
        """Opens the file, or makes it. One that cannot be read is kept aside, and a fresh one is started.

        Args:
            path: of the file.
            shared: another machine may go on with it after this one's death.

        Raises:
            StoreFailed: the disk is full, read-only or failing, or another program has locked the file.
            ConfigError: a newer version of timeslice wrote the file.
        """
        try:
            return cls(path, shared=shared)
        except sqlite3.OperationalError as error:
            raise StoreFailed(f"cannot open {path}: {error}") from error
        except (sqlite3.DatabaseError, ValueError, KeyError, TypeError) as error:
            aside = move_aside(path, suffixes=_SIDE_FILES)
            _log.error("%s is corrupt (%s): it is kept as %s, and a fresh one is started", path, error, aside)
        try:
            return cls(path, shared=shared)
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot make {path}: {error}") from error

    def write(self, saves: Iterable[StoredRecord], drops: Iterable[StoredRecord] = ()) -> None:
        """Saves and drops records, all or none; no key may be in both. What is dropped need not be there.

        Raises:
            StoreFailed: the file is as before.
        """
        rows = [(*row_key(record), VERSION, encoded(record)) for record in saves]
        keys = [row_key(record) for record in drops]
        with self._transaction():
            if rows:
                self._connection.executemany("INSERT OR REPLACE INTO record VALUES (?, ?, ?, ?)", rows)
            if keys:
                self._connection.executemany("DELETE FROM record WHERE kind = ? AND key = ?", keys)

    def check_room(self, event: AcquireRequested) -> None:
        """A file has room for all that may wait."""

    def raise_epoch(self, above: int) -> None:
        """Makes the epoch higher than `above`, on the disk itself.

        Raises:
            StoreFailed: the epoch is as before.
        """
        epoch = max(self.epoch, above) + 1
        with self._transaction():
            self._connection.execute("UPDATE epoch SET value = ?", (epoch,))
        self._checkpoint()
        self.epoch = epoch

    def close(self) -> None:
        """Moves the log into the file and closes it. No write may follow."""
        try:
            self._checkpoint()
        except StoreFailed as error:  # the log stays beside the file and is read at the next opening
            _log.warning("%s", error.message)
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._connection.execute("COMMIT")
            finally:
                if self._connection.in_transaction:  # after most failures SQLite has rolled back by itself
                    self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot write {self.path}: {error}") from error

    def _checkpoint(self) -> None:
        try:
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise StoreFailed(f"cannot write {self.path}: {error}") from error


def _connection(path: Path, *, shared: bool) -> sqlite3.Connection:
    # The lock on the state directory keeps other orchestrators out, so a busy file is an error rather than a wait.
    connection = sqlite3.connect(path, timeout=0.5, isolation_level=None)
    try:
        if shared:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute(f"PRAGMA synchronous={'FULL' if shared else 'NORMAL'}")
        connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
        (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        connection.executescript(_SCHEMA)
    except BaseException:
        connection.close()
        raise
    return connection


def _records(connection: sqlite3.Connection) -> list[StoredRecord]:
    found: list[StoredRecord] = []
    for kind, key, version, body in connection.execute("SELECT kind, key, version, body FROM record"):
        if version > VERSION:
            message = (
                f"the state has a record ({kind} {key}) of version {version}; this timeslice knows up to {VERSION}"
            )
            raise ConfigError(message, hint="start the version of timeslice that wrote it, or a newer one")
        found.append(decoded(kind, body))
    return found
