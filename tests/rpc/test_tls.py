"""Off the machine everything is TLS; what goes wrong with certificates is told in words; and files may be replaced."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import grpc
import grpc.aio
import pytest
from certificates import Authority
from running_orchestrator import stub_of
from timeslice import AsyncOrchestratorClient
from timeslice.channel import Line, open_channel
from timeslice.cli.main import main
from timeslice_api.errors import ConfigError, ConnectionLost
from timeslice_api.status import from_rpc
from timeslice_api.tls import TlsFiles, channel_credentials, uses_tls
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.listen import Listener
from timeslice_orchestrator.server import Orchestrator

NONE = TlsFiles()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def orchestrator(folder: Path, tls: TlsFiles) -> Orchestrator:
    return Orchestrator(OrchestratorConfig(folder / "state", ("127.0.0.1:0",), tls=tls))


def dialled(running: Orchestrator) -> str:
    """By name, as a certificate has it."""
    return running.addresses[0].replace("127.0.0.1", "localhost")


async def asked(address: str, tls: TlsFiles) -> pb.ListGroupsResponse:
    """One call on a new connection. Raises TimesliceError as the client would."""
    credentials = channel_credentials(address, tls)
    options = [("grpc.use_local_subchannel_pool", 1)]
    opened = grpc.aio.secure_channel(address, credentials, options) if credentials else None
    async with opened or grpc.aio.insecure_channel(address, options) as channel:
        try:
            return await stub_of(channel).ListGroups(pb.ListGroupsRequest(), timeout=5)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error


@pytest.mark.parametrize(
    ("address", "files", "tls"),
    [
        ("unix:///run/o.sock", TlsFiles(ca="ca.pem"), False),
        ("127.0.0.1:7070", NONE, False),
        ("[::1]:7070", NONE, False),
        ("localhost:7070", NONE, False),
        ("dns:///localhost:7070", NONE, False),
        ("127.9.9.9:7070", TlsFiles(ca="ca.pem"), True),
        ("10.0.0.1:7070", NONE, True),
        ("[fd00::1]:7070", NONE, True),
        ("0.0.0.0:7070", NONE, True),
        ("orchestrator.timeslice.svc:7070", NONE, True),
        ("dns://10.0.0.1:53/localhost.example:7070", NONE, True),
        ("127.0.0.1.example:7070", NONE, True),
        ("127.0.0.1:1, 127.0.0.2:2", NONE, False),
        ("127.0.0.1:1,10.0.0.2:2", NONE, True),
    ],
)
def test_a_socket_is_plain_and_a_port_is_tls_unless_it_is_of_this_machine_alone(
    address: str, files: TlsFiles, tls: bool
) -> None:
    assert uses_tls(address, files) is tls


@pytest.mark.parametrize("address", ["0.0.0.0:0", "[::]:0", "10.0.0.1:7070", "head-node:7070"])
def test_no_orchestrator_listens_without_tls_where_others_reach_it(address: str) -> None:
    with pytest.raises(ConfigError, match=r"can be reached from other machines, so it needs TLS .*--tls-cert"):
        Listener(address)


async def test_on_this_machine_alone_it_may_be_plain_and_says_so_loudly(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with orchestrator(tmp_path, NONE) as running:
        await asked(running.addresses[0], NONE)
    warned = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert [line for line in warned if line.startswith("WITHOUT TLS: 127.0.0.1:")]


async def test_clients_that_trust_the_authority_are_served_by_every_name_of_the_certificate(
    tmp_path: Path, authority: Authority
) -> None:
    trusting = TlsFiles(ca=authority.file)
    async with orchestrator(tmp_path, authority.certificate("localhost", "127.0.0.1")) as running:
        port = running.addresses[0].rpartition(":")[2]
        for host in ("localhost", "127.0.0.1", "dns:///localhost"):
            await asked(f"{host}:{port}", trusting)
            with open_channel(f"{host}:{port}", trusting) as channel:
                grpc.channel_ready_future(channel).result(timeout=5)


async def test_where_clients_need_a_certificate_only_those_of_the_authority_are_heard(
    tmp_path: Path, authority: Authority
) -> None:
    server = replace(authority.certificate("localhost"), ca=authority.file)
    stranger = replace(Authority(tmp_path / "other").certificate("node-1"), ca=authority.file)
    async with orchestrator(tmp_path, server) as running:
        await asked(dialled(running), replace(authority.certificate("node-1"), ca=authority.file))
        for refused in (stranger, TlsFiles(ca=authority.file)):
            with pytest.raises(ConnectionLost, match=r"a client's certificate.*TIMESLICE_TLS_CERT"):
                await asked(dialled(running), refused)


async def test_a_certificate_that_must_not_be_trusted_is_refused_and_the_reason_is_told(
    tmp_path: Path, authority: Authority
) -> None:
    trusting = TlsFiles(ca=authority.file)
    for number, (server, client, reason) in enumerate(
        (
            (
                authority.certificate("localhost"),
                TlsFiles(ca=Authority(tmp_path / "other").file),
                "not of an authority",
            ),
            (authority.certificate("other.example"), trusting, "for another name"),
            (authority.certificate("localhost", ended=True), trusting, "has expired"),
            (NONE, trusting, "does not speak TLS"),
            (authority.certificate("localhost"), NONE, r"wants TLS.*TIMESLICE_TLS_CA"),
        )
    ):
        async with orchestrator(tmp_path / str(number), server) as running:
            with pytest.raises(ConnectionLost, match=reason):
                await asked(dialled(running), client)


async def test_a_port_that_nobody_has_is_not_taken_for_one_with_tls() -> None:
    with pytest.raises(ConnectionLost, match=r"no answer: .*is it running"):
        await asked("localhost:1", NONE)


async def test_a_new_certificate_is_used_without_a_restart(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    served = authority.certificate("localhost")
    successor = Authority(tmp_path / "successor")
    async with orchestrator(tmp_path, served) as running:
        credentials = channel_credentials(dialled(running), TlsFiles(ca=authority.file))
        assert credentials
        async with grpc.aio.secure_channel(dialled(running), credentials) as channel:
            await stub_of(channel).ListGroups(pb.ListGroupsRequest(), timeout=5)
            put_in_place(successor.certificate("localhost"), served)
            await asked(dialled(running), TlsFiles(ca=successor.file))
            with pytest.raises(ConnectionLost, match="not of an authority"):
                await asked(dialled(running), TlsFiles(ca=authority.file))
            await stub_of(channel).ListGroups(pb.ListGroupsRequest(), timeout=5)  # the open connection goes on
    assert f"certificate {served.cert} was read again" in caplog.messages


def put_in_place(new: TlsFiles, old: TlsFiles) -> None:
    for source, target in ((new.key, old.key), (new.cert, old.cert)):
        shutil.copy(source, f"{target}.new")
        Path(f"{target}.new").rename(target)


async def test_files_that_do_not_fit_together_leave_the_former_in_force_until_they_do(
    tmp_path: Path, authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    served, other = authority.certificate("localhost"), authority.certificate("other.example")
    key = Path(served.key).read_bytes()
    async with orchestrator(tmp_path, served) as running:
        for content in (Path(other.key).read_bytes(), b"no key", None):
            Path(served.key).unlink(missing_ok=True)
            if content is not None:
                Path(served.key).write_bytes(content)
            caplog.clear()
            for _ in range(2):
                await asked(dialled(running), TlsFiles(ca=authority.file))
            [line] = [record.message for record in caplog.records if record.levelno == logging.ERROR]  # once
            assert line.endswith("; the former certificate stays in force")
        Path(served.key).write_bytes(key)
        put_in_place(authority.certificate("elsewhere.example"), served)
        with pytest.raises(ConnectionLost, match="for another name"):
            await asked(dialled(running), TlsFiles(ca=authority.file))


async def ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_client_that_waits_goes_on_when_the_authority_is_replaced(tmp_path: Path, authority: Authority) -> None:
    groups = tmp_path / "groups.yaml"
    groups.write_text("groups: {g: {devices: {node-1: [GPU-1]}}}")
    served, successor = authority.certificate("localhost"), Authority(tmp_path / "successor")
    trusted = Path(shutil.copy(authority.file, tmp_path / "ca.pem"))
    reasons: asyncio.Queue[str] = asyncio.Queue()

    async def told(reason: str) -> None:
        async with asyncio.timeout(8):
            while reason not in await reasons.get():
                pass

    config = OrchestratorConfig(tmp_path / "state", ("127.0.0.1:0",), groups, tls=served)
    async with AsyncExitStack() as stack:
        running = await stack.enter_async_context(Orchestrator(config))
        client = AsyncOrchestratorClient(
            dialled(running),
            job_id="job-a",
            node_socket="",
            tls_ca=str(trusted),
            on_wait=lambda status: reasons.put_nowait(status.reason),
        )
        await stack.enter_async_context(client)
        waiting = asyncio.create_task(client.acquire("g"))
        stack.push_async_callback(ended, waiting)
        await told("node-1 is not connected")
        await running.stop()
        put_in_place(successor.certificate("localhost"), served)
        await stack.enter_async_context(Orchestrator(replace(config, listen=running.addresses)))
        await told("not of an authority")
        shutil.copy(successor.file, trusted)
        await told("node-1 is not connected")


def test_authorities_that_cannot_be_read_leave_the_former_in_force(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trusted = Path(shutil.copy(authority.file, tmp_path / "ca.pem"))
    line = Line("localhost:1", TlsFiles(ca=str(trusted)))
    first = line.channel()
    assert line.channel() is first
    trusted.write_text("no certificate")
    assert line.channel() is line.channel() is first
    assert [record.message.endswith("; the former certificates stay in force") for record in caplog.records] == [True]
    shutil.copy(Authority(tmp_path / "successor").file, trusted)
    assert line.channel() is line.channel() is not first
    line.close()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda files: replace(files, key=""), "needs a certificate and its key"),
        (lambda files: replace(files, cert=""), "needs a certificate and its key"),
        (lambda files: replace(files, cert="/none/cert.pem"), r"cannot use /none/cert.pem: No such file"),
        (lambda files: replace(files, ca="/none/ca.pem"), r"cannot use /none/ca.pem: No such file"),
        (lambda files: replace(files, ca=files.key), "cannot use authorities"),
        (lambda files: replace(files, ca=os.devnull), "/dev/null is no regular file"),
        (lambda files: replace(files, key=files.cert), "with key"),
        (lambda files: TlsFiles(ca=files.ca), "needs a certificate and its key"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_the_start(
    authority: Authority, spoil: Callable[[TlsFiles], TlsFiles], reason: str
) -> None:
    files = spoil(replace(authority.certificate("localhost"), ca=authority.file))
    with pytest.raises(ConfigError, match=reason):
        Listener("0.0.0.0:0", files)


def test_authorities_that_are_not_there_are_named_by_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", "--orchestrator", "head:7070", "--tls-ca", "/none.pem"]) == 2
    assert "cannot use /none.pem: No such file" in capsys.readouterr().err


def test_half_a_pair_is_refused_to_a_client_at_the_start(authority: Authority) -> None:
    with pytest.raises(ConfigError, match="only one was given"):
        AsyncOrchestratorClient("h:1", job_id="job-a", tls_key=authority.certificate("client").key)


def test_a_key_with_a_passphrase_is_refused_and_nobody_is_asked_for_it(authority: Authority) -> None:
    files = authority.certificate("localhost")
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        PrivateFormat,
        load_pem_private_key,
    )

    key = load_pem_private_key(Path(files.key).read_bytes(), None)
    kept = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    Path(files.key).write_bytes(kept)
    with pytest.raises(ConfigError, match="with key"):
        Listener("0.0.0.0:0", files)
