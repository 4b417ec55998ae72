"""Orchestrators on one state directory, of which one serves and another one follows it."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
from dataclasses import replace
from pathlib import Path

import pytest
from certificates import Authority
from timeslice.channel import open_channel
from timeslice_api.errors import ConfigError
from timeslice_api.file_lock import FileLock
from timeslice_api.tls import TlsFiles
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.server import Orchestrator


@pytest.fixture
def config(short_dir: Path) -> OrchestratorConfig:
    return OrchestratorConfig(short_dir / "state", (f"unix://{short_dir}/o.sock",), standby=True)


async def test_who_stands_by_says_who_leads_and_follows_at_once_with_a_higher_epoch(
    config: OrchestratorConfig, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = Orchestrator(config), Orchestrator(config)
    await first.start()
    with caplog.at_level(logging.INFO):
        following = asyncio.create_task(second.start())
        await asyncio.sleep(0.1)
        assert f"standby: process {os.getpid()} on {os.uname().nodename} leads" in caplog.text
        assert not following.done()
        before = first.epoch
        await first.stop()
        async with asyncio.timeout(5):
            await following
    assert second.epoch > before
    await second.stop()


async def test_one_that_gave_up_standing_by_keeps_nobody_away(config: OrchestratorConfig) -> None:
    first = Orchestrator(config)
    await first.start()
    given_up = asyncio.create_task(Orchestrator(config).start())
    await asyncio.sleep(0.1)
    given_up.cancel()
    await asyncio.gather(given_up, return_exceptions=True)
    await first.stop()
    async with asyncio.timeout(5), Orchestrator(config):
        pass


async def test_who_follows_and_cannot_have_the_socket_says_so_and_does_not_keep_the_lead(
    config: OrchestratorConfig, short_dir: Path
) -> None:
    elsewhere = replace(config, state_dir=short_dir / "other state")
    async with Orchestrator(elsewhere):
        with pytest.raises(
            ConfigError, match=rf"o\.sock is in use by another orchestrator \(process {os.getpid()} on "
        ):
            await Orchestrator(config).start()
    async with asyncio.timeout(5), Orchestrator(config):
        pass


def test_a_file_lock_tells_who_has_it_and_one_on_no_file_system_is_an_error(tmp_path: Path) -> None:
    lock, other = (FileLock(tmp_path / "lock", "the folder", by="node") for _ in range(2))
    lock.take()
    lock.take()  # it has it
    with pytest.raises(ConfigError, match=rf"the folder is in use by another node \(process {os.getpid()} on "):
        other.take()
    lock.release()
    other.take()
    other.release()
    with pytest.raises(ConfigError, match=r"cannot lock .*: No such file"):
        FileLock(tmp_path / "missing" / "lock", "it", by="node").take()


async def test_a_file_system_that_fails_while_it_is_waited_for_ends_the_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, waiter = (FileLock(tmp_path / "lock", "the folder", by="node") for _ in range(2))
    owner.take()
    real = fcntl.flock

    def without_locks(fd: int, how: int) -> None:
        if not how & fcntl.LOCK_NB:
            raise OSError(37, "No locks available")
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", without_locks)
    told: list[str] = []
    with pytest.raises(ConfigError, match="No locks available"):
        await waiter.wait(told.append)
    assert told == [f"process {os.getpid()} on {os.uname().nodename}"]
    owner.release()


async def test_over_tls_the_next_of_several_addresses_is_found_by_a_certificate_that_names_all(
    short_dir: Path, tmp_path: Path
) -> None:
    hosts = ("127.0.0.1", "127.0.0.2")
    authority = Authority(tmp_path)
    tls = authority.certificate(*hosts)
    async with Orchestrator(OrchestratorConfig(short_dir / "state", (f"{hosts[1]}:0",), tls=tls)) as orchestrator:
        port = orchestrator.addresses[0].rpartition(":")[2]
        several = ",".join(f"{host}:{port}" for host in hosts)  # nobody listens at the first
        with open_channel(several, TlsFiles(ca=authority.file)) as channel:
            stub = orchestrator_pb2_grpc.OrchestratorStub(channel)
            await asyncio.to_thread(stub.ListGroups, pb.ListGroupsRequest(), timeout=5)
