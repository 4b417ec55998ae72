"""Where an orchestrator listens, and that a second one cannot push in."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest
from running_orchestrator import Running, open_channel, stub_of
from timeslice_api.errors import ConfigError, InvalidRequest
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.listen import Listener
from timeslice_orchestrator.server import Orchestrator


async def answers(address: str) -> bool:
    async with open_channel(address) as channel:
        await stub_of(channel).ListGroups(pb.ListGroupsRequest(), timeout=5)
        return True


async def test_it_listens_on_several_addresses_and_tells_the_port_it_got(short_dir: Path) -> None:
    config = OrchestratorConfig(short_dir / "state", (f"unix://{short_dir}/o.sock", "127.0.0.1:0"))
    async with Orchestrator(config) as orchestrator:
        path, port = orchestrator.addresses
        assert path == f"unix://{short_dir}/o.sock"
        assert int(port.removeprefix("127.0.0.1:")) > 0
        assert await answers(path)
        assert await answers(port)


async def test_only_the_owner_may_open_the_socket(short_dir: Path) -> None:
    before = os.umask(0)
    try:
        async with Orchestrator(OrchestratorConfig(short_dir / "state", (f"unix://{short_dir}/o.sock",))):
            assert stat.S_IMODE((short_dir / "o.sock").stat().st_mode) == 0o600
            assert os.umask(0) == 0
    finally:
        os.umask(before)


async def test_a_second_orchestrator_on_the_same_state_is_refused_and_the_first_goes_on(running: Running) -> None:
    second = Orchestrator(OrchestratorConfig(running.config.state_dir, ("127.0.0.1:0",)))
    with pytest.raises(ConfigError, match=rf"state directory .* is in use .*process {os.getpid()}"):
        await second.start()
    assert await answers(running.address)


async def test_a_second_orchestrator_on_the_same_socket_is_refused_and_the_first_goes_on(
    running: Running, short_dir: Path
) -> None:
    second = Orchestrator(OrchestratorConfig(short_dir / "other", (running.address,)))
    with pytest.raises(ConfigError, match=r"socket .*o\.sock is in use by another orchestrator"):
        await second.start()
    assert await answers(running.address)


async def test_a_port_that_is_in_use_is_refused(short_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=address):
            await Orchestrator(OrchestratorConfig(short_dir / "state", (address,))).start()


async def test_what_a_failed_start_took_is_free_again(short_dir: Path) -> None:
    sock = f"unix://{short_dir}/o.sock"
    with pytest.raises(ConfigError):
        await Orchestrator(OrchestratorConfig(short_dir / "state", (sock, "no.such.host.invalid:1"))).start()
    async with Orchestrator(OrchestratorConfig(short_dir / "state", (sock,))):
        assert await answers(sock)


async def test_a_socket_that_a_dead_process_left_is_replaced(short_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{short_dir}/o.sock")
    async with Orchestrator(OrchestratorConfig(short_dir / "state", (f"unix://{short_dir}/o.sock",))):
        assert await answers(f"unix://{short_dir}/o.sock")


async def test_a_file_in_the_sockets_place_is_left_alone(short_dir: Path) -> None:
    (short_dir / "o.sock").write_text("precious")
    with pytest.raises(ConfigError, match="cannot listen on"):
        await Orchestrator(OrchestratorConfig(short_dir / "state", (f"unix://{short_dir}/o.sock",))).start()
    assert (short_dir / "o.sock").read_text() == "precious"


def test_a_socket_path_may_have_107_bytes_and_no_more() -> None:
    Listener("unix:///" + "p" * 106)
    with pytest.raises(InvalidRequest, match="has 108 bytes; a unix socket path may have 107"):
        Listener("unix:///" + "p" * 107)


@pytest.mark.parametrize(
    "address",
    ["", "localhost", "localhost:", ":80", "localhost:http", "h:70000", "unix://", "unix://relative", "unix:"],
)
def test_an_address_of_another_form_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="address"):
        Listener(address)


async def test_no_address_at_all_is_refused(short_dir: Path) -> None:
    with pytest.raises(ConfigError, match="listen names no address"):
        await Orchestrator(OrchestratorConfig(short_dir / "state", ())).start()


async def test_a_state_directory_that_cannot_be_made_is_refused(short_dir: Path) -> None:
    (short_dir / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot use state directory"):
        await Orchestrator(OrchestratorConfig(short_dir / "file" / "state", ("127.0.0.1:0",))).start()
