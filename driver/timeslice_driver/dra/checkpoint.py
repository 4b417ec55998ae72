"""The plugin's records on disk, shared by the two instances of a rolling update.

Every change reads the file, changes it and replaces it, under a lock of its own; nobody keeps a copy to write later.
Bytes that are the same as before are not decoded again: with many claims that is most of what prepare would cost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_NB, flock
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from timeslice_api.aside import move_aside
from timeslice_api.bounded_files import RECORDS, content_of

from timeslice_driver.dra.records import Encoder, Records, decode
from timeslice_driver.whole_files import replace_file

log = logging.getLogger(__name__)

NAME: Final = "claims.json"
_LOCK_S: Final = 5.0  # another holder needs milliseconds: two syncs of a small file
_RECENT: Final = 3  # contents that are known: who reads while another writes may have the one before
_LOCK_STEP_S: Final = 0.005  # the kernel has no lock with a time limit


class CheckpointError(Exception):
    """The file cannot be read or written; the message says why, and what to do."""


class Checkpoint:
    """The file. Its methods block, for the milliseconds that a disk needs.

    Args:
        folder: made when it is missing, only for its owner.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / NAME
        self._encoder = Encoder()
        self._recent: tuple[tuple[bytes, Records], ...] = ()

    def read(self) -> Records:
        """The records. Empty and incomplete ones where there is no file, or none that can be read: that is kept aside.

        Raises:
            CheckpointError: the disk fails.
        """
        try:
            data = content_of(self._path, RECORDS)
            records = next((records for known, records in self._recent if known == data), None)
            if records is not None:
                return records
            records = decode(data)
        except FileNotFoundError:
            return Records(incomplete=True)
        except OSError as error:
            raise CheckpointError(f"cannot read {self._path}: {error.strerror}") from error
        except ValueError as error:
            aside = move_aside(self._path).name
            log.error("%s cannot be read (%s); kept as %s, prepared claims are found anew", self._path, error, aside)
            return Records(incomplete=True)
        self._remember(data, records)
        return records

    def update(self, change: Callable[[Records], Records], *, durable: bool = True) -> Records:
        """The records after a change, which is on disk when this returns.

        Without `durable` it outlives this process, but not the machine: enough for what a reboot makes void.

        Raises:
            CheckpointError: the disk fails, or another process keeps the lock for more than 5 s; nothing has changed.
        """
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with self._locked():
                before = self.read()
                after = change(before)
                if after != before:
                    data = self._encoder.encode(after)
                    self._remember(data, after)  # before anybody can read it
                    replace_file(self._path, data, durable=durable)
                return after
        except OSError as error:
            raise CheckpointError(f"cannot write {self._path}: {error.strerror}") from error

    @contextmanager
    def _locked(self) -> Iterator[None]:
        deadline = monotonic() + _LOCK_S
        with self._path.with_suffix(".lock").open("ab") as file:
            while True:
                try:
                    flock(file, LOCK_EX | LOCK_NB)
                    break
                except BlockingIOError as error:
                    if monotonic() > deadline:
                        raise CheckpointError(f"another process has held {file.name} for {_LOCK_S:g} s") from error
                    sleep(_LOCK_STEP_S)
            yield  # closing the file lets go of the lock

    def _remember(self, data: bytes, records: Records) -> None:
        self._recent = (*self._recent[1 - _RECENT :], (data, records))
