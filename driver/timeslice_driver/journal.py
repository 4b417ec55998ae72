"""What the node must know after a crash: its parts, the processes that may be parked, and the newest epoch and token.

One file, always whole: written beside, synced, renamed, the folder synced. Its first line is a header with a checksum,
its second the record, both JSON. What counts is that every process is named in it before it is touched: whatever
happens later, the next start asks the driver where that process is. So a command waits for the disk only when the file
does not name its processes yet; states, which the driver knows better, and ends, which the kernel knows, follow soon.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from timeslice_api.aside import move_aside
from timeslice_api.bounded_files import RECORDS, content_of
from timeslice_api.errors import JournalCorrupt
from timeslice_api.shapes import json_of, well_typed
from timeslice_api.tasks import cancelled

from timeslice_driver.backends.base import TargetState
from timeslice_driver.faults import Fault
from timeslice_driver.fencing import Watermark
from timeslice_driver.parts import Held, Member, Part
from timeslice_driver.processes import ProcessId
from timeslice_driver.whole_files import remove_leftovers, replace_file

log = logging.getLogger(__name__)

VERSION: Final = 1
NAME: Final = "journal.json"
_FORMAT: Final = "timeslice node journal"
_BEHIND_S: Final = 0.2  # what no safety hangs on is written this much later, together with what else came


class JournalWriteError(Exception):
    """The record is not on disk; the one before still is. `fault` says why."""

    def __init__(self, fault: Fault) -> None:
        super().__init__(fault.message)
        self.fault = fault


@dataclass(frozen=True)
class Record:
    """What is kept."""

    boot_id: str
    watermark: Watermark = field(default_factory=Watermark)
    parts: tuple[Part, ...] = ()


def encode(record: Record) -> bytes:
    """A record as the bytes of its file."""
    body = json.dumps(
        {
            "boot_id": record.boot_id,
            "epoch": record.watermark.epoch,
            "token": record.watermark.token,
            "highest_token": record.watermark.highest_token,
            "parts": [_from_part(part) for part in record.parts],
        }
    ).encode()
    header = json.dumps({"format": _FORMAT, "version": VERSION, "sha256": hashlib.sha256(body).hexdigest()}).encode()
    return header + b"\n" + body + b"\n"


def decode(data: bytes) -> Record:
    """The record in a file's bytes.

    Raises:
        ValueError: they are not what `encode` makes; the message says what is wrong.
    """
    header_line, _, rest = data.partition(b"\n")
    body = rest.removesuffix(b"\n")
    try:
        header = json_of(header_line)
        if header["format"] != _FORMAT or header["version"] != VERSION:
            raise ValueError(f"it is of format {header['format']!r}, version {header['version']}")
        if header["sha256"] != hashlib.sha256(body).hexdigest():
            raise ValueError("its checksum is wrong")
        content = json_of(body)
        watermark = Watermark(content["epoch"], content["token"], content["highest_token"])
        return well_typed(Record(content["boot_id"], watermark, tuple(_to_part(entry) for entry in content["parts"])))
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks or misplaces {error}") from error


def covers(written: Record, present: Record) -> bool:
    """Whether a start that finds `written` would find all of `present` that only a journal can tell."""
    if written.boot_id != present.boot_id:
        return False
    known = {part.member: part for part in written.parts}
    return all(part.member in known and _covers_part(known[part.member], part) for part in present.parts)


def _covers_part(written: Part, present: Part) -> bool:
    if written.device_ids != present.device_ids or not written.roots >= present.roots:
        return False
    for process, held in present.held.items():
        known = written.held.get(process)
        if known is None or replace(known, state=held.state) != held:
            return False
    return True


def _from_part(part: Part) -> dict[str, Any]:
    return {
        "job_id": part.member.job_id,
        "group_id": part.member.group_id,
        "device_ids": list(part.device_ids),
        "roots": [[root.pid, root.start_time] for root in sorted(part.roots)],
        "held": [_from_held(held) for _, held in sorted(part.held.items())],
        "room": dict(part.room),
    }


def _from_held(held: Held) -> dict[str, Any]:
    return {
        "pid": held.process.pid,
        "start_time": held.process.start_time,
        "state": held.state.value,
        "sizes": dict(held.sizes),
        "job_file": held.job_file,
        "spoilt": held.spoilt,
    }


def _to_part(entry: Mapping[str, Any]) -> Part:
    held = [_to_held(each) for each in entry["held"]]
    return Part(
        Member(entry["job_id"], entry["group_id"]),
        tuple(entry["device_ids"]),
        roots=frozenset(ProcessId(pid, start_time) for pid, start_time in entry["roots"]),
        held={each.process: each for each in held},
        room=dict(entry["room"]),
    )


def _to_held(entry: Mapping[str, Any]) -> Held:
    process = ProcessId(entry["pid"], entry["start_time"])
    return Held(process, TargetState(entry["state"]), dict(entry["sizes"]), entry["job_file"], entry["spoilt"])


class Journal:
    """The file.

    Args:
        folder: the node's state directory; it must exist.
        record: gives what is to be written, at the moment of writing.
    """

    def __init__(self, folder: Path, record: Callable[[], Record]) -> None:
        self._path = folder / NAME
        self._record = record
        self._written: Record | None = None
        self._asked = 0
        self._served = 0
        self._writing = asyncio.Lock()
        self._behind: asyncio.Task[None] | None = None

    @property
    def path(self) -> Path:
        """Of the file."""
        return self._path

    def load(self) -> Record | None:
        """The last record; None when there has been none. What a write that was cut short left goes.

        Raises:
            JournalCorrupt: it cannot be read. It was moved aside, under the name that the message gives.
        """
        remove_leftovers(self._path)
        try:
            return decode(content_of(self._path, RECORDS))
        except FileNotFoundError:
            return None
        except ValueError as error:
            aside = move_aside(self._path)
            raise JournalCorrupt(
                f"{self._path} cannot be read: {error}",
                hint=f"it is kept as {aside.name}; jobs are found again by their environment or when they register",
            ) from error

    async def secure(self) -> None:
        """Returns when a start from the disk would find every process that is known now; the rest follows soon.

        Raises:
            JournalWriteError: it would not.
        """
        if self._written and covers(self._written, self._record()):
            self.flush_soon()
        else:
            await self.flush()

    async def flush(self) -> None:
        """Returns when everything up to now is on disk. Calls that come together share one write.

        Raises:
            JournalWriteError: it is not.
        """
        self._asked += 1
        mine = self._asked
        async with self._writing:
            if self._served >= mine:
                return
            asked, record = self._asked, self._record()
            if record != self._written:
                await asyncio.to_thread(self._write, encode(record))
                self._written = record
            self._served = asked

    def flush_soon(self) -> None:
        """Has the present state written within a moment; a failure is logged."""
        if self._behind is None or self._behind.done():
            self._behind = asyncio.create_task(self._flush_behind())

    async def close(self) -> None:
        """Writes what is still to be written."""
        if self._behind:
            await cancelled(self._behind)
        await self._flush_logged()

    async def _flush_behind(self) -> None:
        await asyncio.sleep(_BEHIND_S)
        await self._flush_logged()

    async def _flush_logged(self) -> None:
        try:
            await self.flush()
        except JournalWriteError as error:
            log.error("%s", error.fault.message)

    def _write(self, data: bytes) -> None:
        try:
            replace_file(self._path, data)
        except OSError as error:
            raise JournalWriteError(_fault(self._path, error)) from error


def _fault(path: Path, error: OSError) -> Fault:
    full = error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
    reason = "JournalFull" if full else "JournalUnwritable"
    hint = f"free space in {path.parent}" if full else f"make {path.parent} writable"
    return Fault(reason, f"cannot write {path}, so nothing was touched: {error.strerror}", hint, retryable=True)
