"""Who is no rank of the job: it gets in at neither end, hears nothing, and keeps no rank out."""

from __future__ import annotations

import json
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from certificates import Authority
from fake_orchestrator import FakeOrchestrator
from patience import in_thread
from timeslice import OrchestratorClient, RankedClient, rank_gathering
from timeslice.rank_key import RankKey
from timeslice.rank_link import Link, listen
from timeslice_api.errors import ConfigError, ConnectionLost
from timeslice_api.limits import raise_open_files

HELLO = b'{"rank": 1, "job_id": "job-a", "host": "h"}\n'


class Keys:
    """Keys of ranks; all of one authority, which proves nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._authority = folder, Authority(folder)

    def made(self, name: str) -> str:
        """A file as all ranks of a job have it."""
        files = self._authority.certificate(name)
        path = self._folder / f"{name}-ranks.pem"
        path.write_bytes(Path(files.key).read_bytes() + Path(files.cert).read_bytes())
        return str(path)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.fixture
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def rank(
    fake: FakeOrchestrator, number: int, address: str, *, key: str = "", job_id: str = "job-a", connect_s: float = 8.0
) -> Iterator[RankedClient]:
    client = OrchestratorClient(fake.address, job_id=job_id, group_id="g", node_socket="")
    ranked = RankedClient(client, rank=number, world_size=2, address=address, key_file=key, connect_s=connect_s)
    try:
        yield ranked
    finally:
        ranked.close()
        client.close()


def a_phase_of(first: RankedClient, second: RankedClient) -> None:
    """Both are in it together."""
    inside = threading.Barrier(2, timeout=5)

    def step(ranked: RankedClient) -> None:
        with ranked.on_accelerators():
            inside.wait()

    other = in_thread(lambda: step(second))
    step(first)
    other.join(5)
    assert not other.is_alive()


def test_ranks_with_the_key_take_turns_and_nobody_on_the_way_can_read_it(
    fake: FakeOrchestrator, keys: Keys, port: int
) -> None:
    key, seen = keys.made("job-a"), bytearray()
    with socket.create_server(("127.0.0.1", 0)) as way:
        in_thread(lambda: relay(way, port, seen))
        with (
            rank(fake, 0, f"127.0.0.1:{port}", key=key) as first,
            rank(fake, 1, f"127.0.0.1:{way.getsockname()[1]}", key=key) as second,
        ):
            a_phase_of(first, second)
    assert len(fake.methods("Acquire")) == len(fake.methods("Yield")) == 1
    assert len(seen) > 1000
    assert b"job" not in seen
    assert b"granted" not in seen


def relay(server: socket.socket, port: int, seen: bytearray) -> None:
    """Carries one connection to a port, and keeps what goes through, both ways."""

    def carry(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while more := source.recv(65536):
                seen.extend(more)
                target.sendall(more)
            target.shutdown(socket.SHUT_WR)

    near, _ = server.accept()
    with near, socket.create_connection(("127.0.0.1", port)) as far:
        back = in_thread(lambda: carry(far, near))
        carry(near, far)
        back.join(5)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("address", ["0.0.0.0:7777", "10.0.0.1:7777", "node-1:7777"])
def test_without_a_key_ranks_meet_nowhere_that_others_reach(fake: FakeOrchestrator, address: str, number: int) -> None:
    message = r"can be reached from other machines, so the ranks need a key .*TIMESLICE_RANKS_KEY"
    with pytest.raises(ConfigError, match=message), rank(fake, number, address):
        pass


def test_on_this_machine_alone_ranks_may_meet_plainly_and_say_so_loudly(
    fake: FakeOrchestrator, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    address = f"localhost:{port}"
    with rank(fake, 0, address) as first, rank(fake, 1, address) as second:
        a_phase_of(first, second)
    assert "WITHOUT TLS" in caplog.text


def test_a_socket_of_ranks_opens_to_its_owner_alone(short_dir: Path) -> None:
    with listen(str(short_dir / "r.sock")):
        assert (short_dir / "r.sock").stat().st_mode & 0o777 == 0o600


def silent(_: socket.socket) -> None: ...


def garbage(connection: socket.socket) -> None:
    connection.sendall(b"\x00" * 100_000)


def a_rank_in_plain_words(connection: socket.socket) -> None:
    connection.sendall(HELLO)


def half_a_handshake(connection: socket.socket) -> None:
    connection.sendall(bytes.fromhex("16030102000100"))


def by_tls(connection: socket.socket, key: str) -> None:
    """The hello of rank 1 by TLS, with the certificate of a key, or with none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if key:
        context.load_cert_chain(key)
    with suppress(OSError), context.wrap_socket(connection.dup()) as encrypted:
        encrypted.sendall(HELLO)
        assert encrypted.recv(100) == b""


def test_strangers_are_turned_away_and_nothing_listens_when_all_ranks_are_there(
    fake: FakeOrchestrator, keys: Keys, port: int, caplog: pytest.LogCaptureFixture
) -> None:
    key, other_key = keys.made("job-a"), keys.made("neighbour")
    attacks: list[Callable[[socket.socket], None]] = [
        silent,
        garbage,
        half_a_handshake,
        a_rank_in_plain_words,
        lambda connection: by_tls(connection, ""),
        lambda connection: by_tls(connection, other_key),
    ]
    address = f"127.0.0.1:{port}"
    with rank(fake, 0, address, key=key) as first, rank(fake, 1, address, key=key) as second, ExitStack() as stack:
        waiting = in_thread(first.acquire)
        for attack in attacks * 2:
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            with suppress(OSError):  # it is told the end at some moment of its choice
                attack(connection)
        assert waiting.is_alive()
        assert fake.methods("Acquire") == []
        second.acquire()
        waiting.join(5)
        assert fake.holders == ["job-a"]
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), timeout=5)
        second.yield_()
        first.yield_()
    turned_away = [record for record in caplog.records if "was turned away" in record.message]
    assert len([record for record in turned_away if record.levelno == logging.WARNING]) == 1


@pytest.mark.timeout(120)
@pytest.mark.parametrize("count", [400, pytest.param(10_000, marks=pytest.mark.long)], ids=str)
def test_connections_that_say_nothing_keep_no_rank_out(
    fake: FakeOrchestrator, keys: Keys, port: int, count: int
) -> None:
    if raise_open_files() < count + 1000:
        pytest.skip(f"this process may not have {count} open files")
    key, address = keys.made("job-a"), f"127.0.0.1:{port}"
    with ExitStack() as stack:
        first, second = (stack.enter_context(rank(fake, n, address, key=key, connect_s=100)) for n in (0, 1))
        waiting = in_thread(first.acquire)
        for _ in range(count):  # more than are listened to at a time
            stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=20))
        began = time.monotonic()
        second.acquire()
        assert time.monotonic() - began < 5
        waiting.join(5)
        second.yield_()
        first.yield_()


def test_who_says_nothing_is_let_go_and_the_lack_of_ranks_tells_of_it(
    fake: FakeOrchestrator, keys: Keys, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rank_gathering, "HELLO_S", 0.2)
    failures: list[str] = []

    def ask(first: RankedClient) -> None:
        with pytest.raises(ConnectionLost) as caught:
            first.acquire()
        failures.append(caught.value.message)

    with rank(fake, 0, f"127.0.0.1:{port}", key=keys.made("job-a"), connect_s=1.0) as first:
        waiting = in_thread(lambda: ask(first))
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            assert connection.recv(100) == b""
            assert waiting.is_alive()
        waiting.join(5)
    (message,) = failures
    assert message.startswith("1 of 1 other ranks did not come in 1 s; 1 connections were turned away, the last one")
    assert message.endswith("it has said nothing for 0.2 s")


def test_a_rank_believes_no_rank_0_without_the_key(fake: FakeOrchestrator, keys: Keys, port: int) -> None:
    key, other_key = keys.made("job-a"), keys.made("neighbour")

    def plain(connection: socket.socket) -> None:
        connection.recv(65536)
        connection.sendall(b'{"welcome": 1}\n{"granted": true}\n')

    def by_another_key(connection: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(other_key)
        with suppress(OSError), context.wrap_socket(connection.dup(), server_side=True) as encrypted:
            encrypted.recv(65536)
            encrypted.sendall(b'{"welcome": 1}\n{"granted": true}\n')

    for pretend in (plain, by_another_key):
        with socket.create_server(("127.0.0.1", port)) as server, rank(fake, 1, f"127.0.0.1:{port}", key=key) as second:
            pretender = in_thread(lambda server=server, pretend=pretend: answer(server, pretend))  # type: ignore[misc]
            with pytest.raises(ConnectionLost, match="does not have the key of the ranks"):
                second.acquire()
            pretender.join(5)


def answer(server: socket.socket, pretend: Callable[[socket.socket], None]) -> None:
    connection, _ = server.accept()
    with connection:
        pretend(connection)


def test_a_rank_of_another_job_is_told_that_it_is_wrong_here(fake: FakeOrchestrator, short_dir: Path) -> None:
    address = str(short_dir / "r.sock")
    with (
        rank(fake, 0, address) as first,
        rank(fake, 1, address) as second,
        rank(fake, 1, address, job_id="job-b") as wrong,
    ):
        waiting = in_thread(first.acquire)
        with pytest.raises(ConfigError, match=r"job-b.* where ranks of job-a were expected"):
            wrong.acquire()
        second.acquire()
        waiting.join(5)
        second.yield_()
        first.yield_()


def test_a_hello_may_come_in_pieces_and_must_not_be_long(fake: FakeOrchestrator, short_dir: Path) -> None:
    address = short_dir / "r.sock"

    def dialled() -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(5)
        connection.connect(str(address))
        return connection

    with rank(fake, 0, str(address)) as first:
        waiting = in_thread(lambda: ends_with(ConnectionLost, first.acquire))
        with closing(dialled()) as long:
            with suppress(BrokenPipeError):
                long.sendall(b" " * 10_000)
            with suppress(ConnectionResetError):
                assert long.recv(100) == b""
        with closing(dialled()) as slow:
            for byte in HELLO:
                slow.sendall(bytes([byte]))
            assert json.loads(slow.recv(100)) == {"welcome": 1}
        waiting.join(5)


def ends_with(error: type[Exception], ask: Callable[[], None]) -> None:
    with pytest.raises(error):
        ask()


@pytest.mark.parametrize("part", ["key", "certificate", "nothing", "other key"])
def test_a_file_that_is_no_key_of_ranks_is_refused(keys: Keys, tmp_path: Path, part: str) -> None:
    key, bad = Path(keys.made("job-a")).read_text(), tmp_path / "bad.pem"
    cut = key.index("-----BEGIN CERTIFICATE")
    other = Path(keys.made("neighbour")).read_text()
    texts = {
        "key": key[:cut],
        "certificate": key[cut:],
        "nothing": "",
        "other key": other[: other.index("-----BEGIN C")] + key[cut:],
    }
    bad.write_text(texts[part])
    with pytest.raises(ConfigError, match=r"bad.pem does not hold a key of ranks and its certificate"):
        RankKey(str(bad))
    with pytest.raises(ConfigError, match=r"none.pem does not hold"):
        RankKey(str(tmp_path / "none.pem"))


def test_a_rank_whose_machine_is_gone_is_found_out_by_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        link = Link(socket.create_connection(server.getsockname()), "rank 1")
        option = link._connection.getsockopt
        patience = option(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) + 3 * option(
            socket.IPPROTO_TCP, socket.TCP_KEEPINTVL
        )
        assert option(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert patience <= 30
        assert option(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 25_000
        link.close()
