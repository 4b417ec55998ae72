"""Tells when a file may have changed: by inotify on its directory, so that replacing it, or a link on the way to it, is
seen too. Where the kernel gives no inotify (its limits are reached, or a file system does not support it), the file's
time is looked at every two seconds instead."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from pathlib import Path

_log = logging.getLogger(__name__)

# <sys/inotify.h>
_IN_CLOSE_WRITE = 0x008
_IN_MOVED = 0x0C0
_IN_CREATE = 0x100
_IN_DELETE = 0x200
_MASK = _IN_CLOSE_WRITE | _IN_MOVED | _IN_CREATE | _IN_DELETE
_POLL_S = 2.0
_SETTLE_S = 0.05  # editors and config maps make several changes in a row


class FileWatch:
    """A watch on one file, from `open` to `close`; every change after `open` is told, so read the file after it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._event = asyncio.Event()
        self._fd = -1
        self._stamp = self._stamp_now()

    def open(self) -> None:
        """Begins to watch."""
        self._stamp = self._stamp_now()
        try:
            self._fd = _inotify(self.path.parent)
        except OSError as error:
            _log.warning("no inotify for %s (%s): looking every %g s", self.path.parent, error, _POLL_S)
        else:
            asyncio.get_running_loop().add_reader(self._fd, self._drain)

    def close(self) -> None:
        """Ends the watch. Safe to repeat."""
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    async def changed(self) -> None:
        """Returns when the file is another one, has another time or size, or is gone, or came back."""
        while True:
            await self._woken()
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._stamp = stamp
                return

    async def _woken(self) -> None:
        if self._fd < 0:
            await asyncio.sleep(_POLL_S)
            return
        await self._event.wait()
        await asyncio.sleep(_SETTLE_S)
        self._event.clear()

    def _drain(self) -> None:
        try:
            os.read(self._fd, 65536)
        except BlockingIOError:
            return
        self._event.set()

    def _stamp_now(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def _inotify(directory: Path) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
    if fd < 0:
        raise _os_error()
    if libc.inotify_add_watch(fd, os.fsencode(directory), _MASK) < 0:
        error = _os_error()
        os.close(fd)
        raise error
    return fd


def _os_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
