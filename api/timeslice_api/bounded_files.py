"""Files that are read whole, which somebody else may have put there: whoever reads one neither waits nor runs full."""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISREG

RECORDS = 64 << 20  # bytes: what our own programs keep; ten thousand claims have a sixth of it
CERTIFICATES = 4 << 20  # bytes, or a key of theirs; all public authorities together have a quarter of a million


def content_of(path: Path, most: int) -> bytes:
    """A file's bytes, of which there may be `most`.

    Raises:
        ValueError: there are more, or it is a pipe, a device or a folder.
        OSError: there is none, or it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # else a pipe is waited for
    try:
        if not S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is no regular file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            content = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise ValueError(f"{path} has more than {most} bytes")
    return content
