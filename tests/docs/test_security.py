"""The certificates and keys that docs/security.md makes are such as they are needed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import grpc.aio
import pytest
from running_orchestrator import stub_of
from shown import ROOT, commands, snippets
from timeslice.rank_key import RankKey
from timeslice_api.tls import TlsFiles, channel_credentials
from timeslice_api.v1alpha1 import orchestrator_pb2
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.server import Orchestrator


def run(what: str, folder: Path) -> None:
    """The openssl commands of the block that has these words."""
    (making,) = [each for each in snippets("text") if each.document == ROOT / "docs/security.md" and what in each.text]
    for command in commands(making):
        if command.startswith("openssl"):
            subprocess.run(["bash", "-euc", command], cwd=folder, check=True, capture_output=True, timeout=30)


@pytest.mark.timeout(60)
def test_the_key_of_ranks_of_the_document_is_one_and_its_owners_alone(tmp_path: Path) -> None:
    run("CN=ranks of job-a", tmp_path)
    RankKey(str(tmp_path / "ranks.pem"))
    assert (tmp_path / "ranks.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.timeout(60)
async def test_the_certificates_of_the_document_serve_the_name_they_are_made_for(tmp_path: Path) -> None:
    run("CN=head", tmp_path)
    ca, cert, key = (str(tmp_path / name) for name in ("ca.pem", "server.pem", "server.key"))
    config = OrchestratorConfig(tmp_path / "state", ("127.0.0.1:0",), tls=TlsFiles(ca=ca, cert=cert, key=key))
    async with Orchestrator(config) as running:
        address = running.addresses[0]
        credentials = channel_credentials(address, TlsFiles(ca, cert, key))
        assert credentials
        named = [("grpc.ssl_target_name_override", "head")]
        async with grpc.aio.secure_channel(address, credentials, options=named) as channel:
            await stub_of(channel).ListGroups(orchestrator_pb2.ListGroupsRequest(), timeout=5)
