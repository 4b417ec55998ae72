"""What may lie where a file of ours is read: each reader is done at once, with little memory, and nothing ends."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from timeslice.rank_key import RankKey
from timeslice_api.bounded_files import content_of
from timeslice_api.errors import ConfigError, JournalCorrupt, TokenMissing
from timeslice_api.file_lock import FileLock
from timeslice_api.tls import TlsFiles, channel_credentials, server_context
from timeslice_api.tokens import TokenFile
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.dra.cdi import CdiFolder
from timeslice_driver.dra.checkpoint import NAME as CHECKPOINT
from timeslice_driver.dra.checkpoint import Checkpoint
from timeslice_driver.dra.records import Records
from timeslice_driver.dra.vendor_cdi import VendorCdi
from timeslice_driver.journal import NAME as JOURNAL
from timeslice_driver.journal import Journal, Record
from timeslice_driver.processes import ProcFs
from timeslice_driver.whole_files import replace_file
from timeslice_orchestrator.access.tokens_file import FileTokens
from timeslice_orchestrator.strict_yaml import text_of


def pipe(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def huge(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(4 << 30)  # without a block on the disk


def groups_file(folder: Path) -> str:
    with pytest.raises(ConfigError, match="cannot read groups file") as refused:
        text_of(folder / "file", "groups file")
    return refused.value.message


def tokens_file(folder: Path) -> str:
    with pytest.raises(ConfigError, match="cannot read tokens file") as refused:
        FileTokens(folder / "file")
    return refused.value.message


def own_token(folder: Path) -> str:
    with pytest.raises(TokenMissing, match="holds no token") as refused:
        TokenFile(folder / "file").metadata()
    return refused.value.message


def journal(folder: Path) -> str:
    (folder / "file").rename(folder / JOURNAL)
    with pytest.raises(JournalCorrupt, match="cannot be read") as refused:
        Journal(folder, lambda: Record("b")).load()
    return refused.value.message


def checkpoint(folder: Path) -> Any:
    (folder / "file").rename(folder / CHECKPOINT)
    return Checkpoint(folder).read() == Records(incomplete=True)


def spec_of_ours(folder: Path) -> Any:
    specs = CdiFolder(folder)
    (folder / "file").rename(specs.path("uid"))
    return specs.read("uid") == {} and specs.write("uid", {"a": 1}) and specs.path("uid").read_bytes()


def specs_of_others(folder: Path) -> Any:
    (folder / "file").rename(folder / "nvidia.yaml")
    return VendorCdi([folder]).ids() == {}


def authorities(folder: Path) -> str:
    with pytest.raises(ConfigError, match="of the files for TLS, ") as refused:
        channel_credentials("host:1", TlsFiles(ca=str(folder / "file")))
    return refused.value.message


def certificate(folder: Path) -> str:
    with pytest.raises(ConfigError, match="of the files for TLS, ") as refused:
        server_context(TlsFiles(cert=str(folder / "file"), key=str(folder / "file")))
    return refused.value.message


def authorities_for_pods(folder: Path) -> Any:
    sockets = ClaimSockets(folder / "claims", ca=folder / "file")
    claim = PreparedClaim("uid", "ns", "claim", "job-a", "g", ("GPU-1",), {})
    with pytest.raises(ConfigError, match="cannot make the folder of claim uid: ") as refused:
        asyncio.run(sockets.open(claim))
    return refused.value.message


def key_of_ranks(folder: Path) -> str:
    with pytest.raises(ConfigError, match="does not hold a key of ranks") as refused:
        RankKey(str(folder / "file"))
    return refused.value.message


def boot_id(folder: Path) -> Any:
    return ProcFs(boot_id_file=folder / "file").boot_id() == ""


def owner_of_a_lock(folder: Path) -> Any:
    return FileLock(folder / "file", "the state", by="orchestrator")._owner() == "process unknown"


READERS = [
    *(groups_file, tokens_file, own_token, journal, checkpoint, spec_of_ours, specs_of_others, authorities),
    *(certificate, authorities_for_pods, key_of_ranks, boot_id, owner_of_a_lock),
]


FOLDERS = [(Path.mkdir, read) for read in READERS if read is not spec_of_ours]  # which no file can take the place of


@pytest.mark.parametrize(("make", "read"), [*itertools.product([pipe, endless, huge], READERS), *FOLDERS])
def test_a_file_that_is_none_or_too_large_is_refused_at_once(
    tmp_path: Path, make: Callable[[Path], object], read: Callable[[Path], Any]
) -> None:
    make(tmp_path / "file")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert read(tmp_path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10  # KiB


def test_a_link_in_the_place_of_what_is_written_beside_a_file_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"as before")
    (tmp_path / f".token.{os.getpid()}.tmp").symlink_to(tmp_path / "victim")
    with pytest.raises(OSError, match="symbolic links"):
        replace_file(tmp_path / "token", b"new")
    assert (tmp_path / "victim").read_bytes() == b"as before"
    replace_file(tmp_path / "token", b"new")  # the link went with the failure
    assert (tmp_path / "token").read_bytes() == b"new"


def test_a_file_of_just_the_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert content_of(tmp_path / "file", 5) == b"12345"
    with pytest.raises(ValueError, match="has more than 4 bytes"):
        content_of(tmp_path / "file", 4)
    with pytest.raises(FileNotFoundError):
        content_of(tmp_path / "none", 4)
