"""Certificates for tests: an authority, and what it signs, as files."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import trustme
from timeslice_api.tls import TlsFiles


class Authority:
    """An authority of its own, and a folder in which its files are."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._ca = trustme.CA()
        self.file = str(folder / "ca.pem")
        self._ca.cert_pem.write_to_path(self.file)

    def certificate(self, *names: str, ended: bool = False) -> TlsFiles:
        """Certificate and key for these names, without an authority to trust."""
        times = {"not_before": datetime(2020, 1, 1, tzinfo=UTC), "not_after": datetime(2021, 1, 1, tzinfo=UTC)}
        made = self._ca.issue_cert(*names, **(times if ended else {}))
        stem = f"{names[0]}{'-ended' if ended else ''}"
        cert, key = (self._folder / f"{stem}.{end}" for end in ("pem", "key"))
        for place, parts in ((cert, made.cert_chain_pems), (key, [made.private_key_pem])):
            new = place.with_suffix(".new")
            new.write_bytes(b"".join(part.bytes() for part in parts))
            new.rename(place)
        return TlsFiles(cert=str(cert), key=str(key))
