"""How calls to the orchestrator say who makes them: a token in a file, sent as `authorization: Bearer TOKEN`.

Over a unix socket none is needed: its permissions say who may call. RFC 6750 has the form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final, TypeAlias

from timeslice_api.bounded_files import content_of
from timeslice_api.errors import TokenMissing

AUDIENCE: Final = "timeslice"  # of service accounts' tokens: good for nobody else
MAX_TOKEN: Final = 8 << 10  # characters; those of Kubernetes have about a thousand
_LARGEST: Final = 1 << 16  # bytes of its file
_KEY: Final = "authorization"
_SCHEME: Final = "bearer "
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")

Metadata: TypeAlias = tuple[tuple[str, str], ...]
_Stamp: TypeAlias = tuple[int, int, int]


class TokenFile:
    """A file with one token, read again whenever it is another one, so that whoever renews it needs to tell nobody.

    Args:
        path: of the file. It need not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = Path(path)
        self._read: tuple[_Stamp, Metadata] | None = None

    def metadata(self) -> Metadata:
        """What a call has to carry. Reads a small file when it has changed, and else looks at its time.

        Raises:
            TokenMissing: there is no file, nothing in it, or something that is no token.
        """
        try:
            found = self._path.stat()
            stamp = found.st_ino, found.st_mtime_ns, found.st_size
            if self._read is None or self._read[0] != stamp:
                self._read = stamp, self._metadata_in(content_of(self._path, _LARGEST))
        except OSError as error:
            raise TokenMissing(f"there is no token in {self._path}: {error.strerror}") from error
        except ValueError as error:
            raise TokenMissing(f"{self._path} holds no token: {error}") from error
        return self._read[1]

    def _metadata_in(self, content: bytes) -> Metadata:
        token = content.decode("ascii", "replace").strip()
        if len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
            raise TokenMissing(f"{self._path} holds no token{'' if token else ': it is empty'}")
        return ((_KEY, f"Bearer {token}"),)


def token_in(metadata: Iterable[tuple[str, str | bytes]]) -> str:
    """The token that a call carries; empty when it carries none, or more than a token may be."""
    for key, value in metadata:
        if key == _KEY and isinstance(value, str) and value[: len(_SCHEME)].lower() == _SCHEME:
            token = value[len(_SCHEME) :].strip()
            return token if len(token) <= MAX_TOKEN else ""
    return ""
