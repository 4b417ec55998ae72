"""Orchestrators as pods would run them: each on its own address, and a service's name for the leader."""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import aiohttp
import grpc.aio
from running_orchestrator import open_channel
from scripted_node import Key, ScriptedNode
from timeslice_api.tls import TlsFiles
from timeslice_api.v1alpha1 import agent_link_pb2, types_pb2

NAME = "orchestrator.timeslice.svc"


def free_port(host: str) -> int:
    """A port that nobody has just now."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


class Pod:
    """A process `timeslice orchestrator --kubernetes`. `name` ends in a digit, which makes its address.

    It speaks TLS at `address`, with these files, and plainly at the unix socket `door`.
    """

    def __init__(self, name: str, folder: Path, kubeconfig: Path, *, port: int, lease_s: float, tls: TlsFiles) -> None:
        self.name = name
        self._lease_s = lease_s
        self.host = f"127.0.0.{10 + int(name[-1])}"
        self.address = f"{self.host}:{port}"
        self.door = f"unix://{folder}/{name}.sock"
        self._tls = tls
        self.telemetry = f"{self.host}:{free_port(self.host)}"
        self._log = folder / f"{name}.log"
        self._kubeconfig = kubeconfig
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Starts the process, which stands for election."""
        code = "import sys; from timeslice.cli.main import main; sys.exit(main(sys.argv[1:]))"
        options = ["--kubeconfig", str(self._kubeconfig), "--namespace", "timeslice", "--identity", self.name]
        options += ["--listen", self.address, "--listen", self.door, "--telemetry-listen", self.telemetry]
        options += ["--tls-cert", self._tls.cert, "--tls-key", self._tls.key, "--lease-duration", str(self._lease_s)]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", code, "orchestrator", "--kubernetes", *options, stdout=log, stderr=log
            )

    def signal(self, number: signal.Signals) -> None:
        """Sends it a signal."""
        assert self._process
        self._process.send_signal(number)

    async def ended(self, within_s: float = 30.0) -> int:
        """Waits for its end; the exit status."""
        assert self._process
        async with asyncio.timeout(within_s):
            return await self._process.wait()

    async def kill(self) -> None:
        """Ends it, whatever it does."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    @property
    def log(self) -> str:
        """What it has said."""
        return self._log.read_text(errors="replace")

    async def is_ready(self) -> bool:
        """Whether it leads, as a probe sees it."""
        return await self._probe("readyz")

    async def up(self, within_s: float = 60.0) -> None:
        """Waits until it stands for election."""
        async with asyncio.timeout(within_s):
            while not await self._probe("healthz"):
                await asyncio.sleep(0.1)

    async def _probe(self, path: str) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=2.0)
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(self.url(path), ssl=False) as answer,
            ):
                return answer.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def metrics(self) -> str:
        """Its figures."""
        async with aiohttp.ClientSession() as session, session.get(self.url("metrics"), ssl=False) as answer:
            return await answer.text()

    def url(self, path: str) -> str:
        """Of its telemetry; whose certificate a probe does not look at."""
        return f"https://{self.telemetry}/{path}"


class Service:
    """A headless service: a name server that knows the pods, and what the probes say of them.

    `address` is for clients: it names the service, and this name server. With `only_ready` the name stands for the pod
    that leads; else for all, of which only that one listens.
    """

    def __init__(self, *pods: Pod, only_ready: bool = False) -> None:
        self._pods = pods
        self._only_ready = only_ready
        self.ready: list[Pod] = []
        self._changed = asyncio.Event()
        self._probing: asyncio.Task[None] | None = None
        self._transport: asyncio.DatagramTransport | None = None
        self.address = ""

    async def __aenter__(self) -> Service:
        loop = asyncio.get_running_loop()
        self._transport, _ = await loop.create_datagram_endpoint(
            lambda: _NameServer(self._hosts), local_addr=("127.0.0.1", 0)
        )
        port = self._transport.get_extra_info("sockname")[1]
        self.address = f"dns://127.0.0.1:{port}/{NAME}:{self._pods[0].address.rpartition(':')[2]}"
        self._probing = asyncio.create_task(self._probe())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._probing
        assert self._transport
        self._probing.cancel()
        await asyncio.gather(self._probing, return_exceptions=True)
        self._transport.close()

    async def leader(self, *, other_than: Pod | None = None, within_s: float = 60.0) -> Pod:
        """Waits until exactly one pod is ready, another one than that."""
        async with asyncio.timeout(within_s):
            while not (len(self.ready) == 1 and self.ready[0] is not other_than):
                self._changed.clear()
                await self._changed.wait()
        return self.ready[0]

    def _hosts(self) -> list[str]:
        return [pod.host for pod in (self.ready if self._only_ready else self._pods)]

    async def _probe(self) -> None:
        while True:
            answers = await asyncio.gather(*(pod.is_ready() for pod in self._pods))
            ready = [pod for pod, answer in zip(self._pods, answers, strict=True) if answer]
            if ready != self.ready:
                self.ready = ready
                self._changed.set()
            await asyncio.sleep(0.1)


class _NameServer(asyncio.DatagramProtocol):
    """Answers every question for A records with the hosts; RFC 1035, no more than that."""

    def __init__(self, hosts: Callable[[], list[str]]) -> None:
        self._hosts = hosts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        end = data.index(b"\0", 12) + 5
        (kind,) = struct.unpack("!H", data[end - 4 : end - 2])
        hosts = self._hosts() if kind == 1 else []
        known = 0 if self._hosts() else 3  # NXDOMAIN
        head = data[:2] + struct.pack("!HHHHH", 0x8580 | known, 1, len(hosts), 0, 0)
        records = (b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 0, 4) + socket.inet_aton(host) for host in hosts)
        self._transport.sendto(head + data[12:end] + b"".join(records), addr)


class FaithfulNode:
    """A scripted node that dials the service again when its link breaks, as a real one does.

    `parts` are on it, by job and group; while `obeys` is False, commands only come in `commands`.
    """

    def __init__(self, service: Service, name: str, groups: dict[str, tuple[str, ...]]) -> None:
        self._service = service
        self._name = name
        self._groups = groups
        self.epoch = self._token = 0
        self.parts: dict[Key, types_pb2.Part] = {}
        self.obeys = True
        self.commands: asyncio.Queue[agent_link_pb2.Command] = asyncio.Queue()
        self._node: ScriptedNode | None = None
        self._linked = asyncio.Event()
        self.welcomed_by: list[str] = []
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> FaithfulNode:
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._task
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def joins(self, joined: types_pb2.Part) -> None:
        """Processes of a job have registered, once the node is linked."""
        async with asyncio.timeout(30):
            await self._linked.wait()
        assert self._node
        await self._node.joins(joined)

    def obey(self, *, obeys: bool) -> None:
        """From now on it obeys commands by itself, or not."""
        assert self._node
        self.obeys = self._node.obeys = obeys

    async def _run(self) -> None:
        while True:
            for pod in list(self._service.ready):
                channel = open_channel(pod.door)
                try:
                    await self._serve(channel, pod)
                except (grpc.aio.AioRpcError, TimeoutError, AssertionError):
                    pass
                finally:
                    await channel.close()
            await asyncio.sleep(0.1)

    async def _serve(self, channel: grpc.aio.Channel, pod: Pod) -> None:
        node = ScriptedNode(channel, self._name, self._groups, epoch=self.epoch, token=self._token, obeys=self.obeys)
        node.parts, node.commands, self._node = self.parts, self.commands, node
        try:
            await node.connect()
            self.epoch = node.highest_epoch = node.welcome.epoch
            self.welcomed_by.append(pod.name)
            self._linked.set()
            while self._service.ready == [pod]:
                await asyncio.sleep(0.05)
        finally:
            self._linked.clear()
            self._token = node.highest_token
            await node.cut()
