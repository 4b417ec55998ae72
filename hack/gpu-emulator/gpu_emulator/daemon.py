"""The daemon: one unix socket for job processes, checkpoint callers, NVML readers and control."""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpu_emulator import procfs
from gpu_emulator.arena import Arena
from gpu_emulator.checkpoint import Bandwidth, Checkpointer
from gpu_emulator.codes import cuda_version
from gpu_emulator.desk import ControlDesk
from gpu_emulator.device import Device, make_uuid
from gpu_emulator.faults import FaultScript
from gpu_emulator.nvml import NvmlService
from gpu_emulator.peer import Peer, PeerGoneError
from gpu_emulator.process import Job, parse_flags
from gpu_emulator.requests import CallerCrashError, Requests
from gpu_emulator.silicon import Silicon
from gpu_emulator.trace import no_trace, trace_to

SOCKET_PATH_LIMIT = 107  # bytes, unix(7)
_LINE_LIMIT = 1 << 20


@dataclass(frozen=True)
class Settings:
    """What a daemon is started with. Sizes in bytes, rates in bytes per second (0 without limit), times in seconds."""

    socket_path: Path
    gpus: int = 1
    memory: int = 256 << 20
    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    context_overhead: int = 2 << 20
    driver_version: str = "570.86"
    name: str = "NVIDIA H100 80GB HBM3"
    dev_root: Path | None = None
    faults_file: Path | None = None
    collective_window: float = 0.25
    uuid_seed: str = "gpu-emulator"
    mig: bool = False
    trace: Path | None = None


def _make_devices(settings: Settings) -> list[Device]:
    return [
        Device(
            index=index,
            uuid=make_uuid(settings.uuid_seed, index),
            name=settings.name,
            arena=Arena(f"gpu-emulator-{index}", settings.memory),
            mig=settings.mig,
        )
        for index in range(settings.gpus)
    ]


class Daemon:
    """Accepts connections and gives each line to the part that knows the answer."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        trace = trace_to(settings.trace) if settings.trace else no_trace
        self.silicon = Silicon(_make_devices(settings), context_overhead=settings.context_overhead, trace=trace)
        faults = FaultScript.load(settings.faults_file) if settings.faults_file else FaultScript([])
        self._cuda_version = cuda_version(settings.driver_version)
        self._requests = Requests(
            self.silicon,
            checkpointer=Checkpointer(
                self.silicon, bandwidth=settings.bandwidth, collective_window=settings.collective_window
            ),
            nvml=NvmlService(self.silicon, driver_version=settings.driver_version, cuda_version=self._cuda_version),
            faults=faults,
            versions=(self._cuda_version, settings.driver_version),
        )
        self._connections: set[asyncio.Future[None]] = set()
        self._desk = ControlDesk(self.silicon, faults)

    async def serve(self, stop: asyncio.Event, *, announce: Callable[[], None]) -> None:
        """Calls ``announce`` when it listens, and serves until ``stop`` is set.

        OSError when the socket is in use by a living daemon, or its path is too long.
        """
        self._make_nodes()
        listener = _listen(self._settings.socket_path)
        inode = self._settings.socket_path.stat().st_ino
        server = await asyncio.start_unix_server(self._accept, sock=listener, limit=_LINE_LIMIT)
        try:
            announce()
            await stop.wait()
        finally:
            server.close()
            for connection in self._connections:
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            with contextlib.suppress(FileNotFoundError):
                if self._settings.socket_path.stat().st_ino == inode:
                    self._settings.socket_path.unlink()

    def _make_nodes(self) -> None:
        root = self._settings.dev_root
        if root is None:
            return
        root.mkdir(parents=True, exist_ok=True)
        for name in ["nvidiactl", "nvidia-uvm", *(f"nvidia{device.index}" for device in self.silicon.devices)]:
            (root / name).touch()
            (root / name).chmod(0o666)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = asyncio.ensure_future(self._connected(reader, writer))
        self._connections.add(connection)
        connection.add_done_callback(self._connections.discard)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(reader, writer)
        try:
            first = await peer.next_line()
            if first.startswith("job "):
                await self._serve_job(peer, first)
            else:
                await self._serve_calls(peer, first)
        except (PeerGoneError, ConnectionError):
            return
        except ValueError as error:
            # A line beyond any sense ends the connection that it came on, and nothing else.
            print(f"gpu-emulator: process {peer.pid}: {error}", flush=True)
        finally:
            peer.close()

    async def _serve_calls(self, peer: Peer, line: str) -> None:
        """One call after the other; a call is cancelled when its caller is gone."""
        while True:
            try:
                answer = await peer.unless_gone(self._answer(line, peer))
            except CallerCrashError:
                answer = "crash"
            peer.send(answer)
            line = await peer.next_line()

    async def _answer(self, line: str, peer: Peer) -> str:
        verb, _, rest = line.partition(" ")
        if verb == "control":
            return self._desk.answer(rest)
        return await self._requests.answer(verb, rest, caller=peer.pid, caller_uid=peer.uid)

    async def _serve_job(self, peer: Peer, line: str) -> None:
        """The connection of a restore thread: commands go out, results come back; its end is the process' end."""
        job = self._introduce(peer, line)
        if refusal := await peer.unless_gone(self._requests.init_refusal(job)):
            peer.send(str(refusal))
            return
        self.silicon.add_job(job)
        try:
            self._greet(peer)
            with self._watch_death(job, peer):
                while not job.gone:
                    sequence, code, count = map(int, (await peer.next_line()).split())
                    job.answered(sequence, code, count)
        finally:
            self.silicon.remove_job(job)

    @staticmethod
    def _introduce(peer: Peer, line: str) -> Job:
        """`job TID FLAGS NAME`"""
        _, tid, flags_text, name = line.split()
        if peer.pid == 0:
            raise ValueError("a process of a pid namespace that this daemon cannot see")
        flags, group = parse_flags(flags_text)
        return Job(
            pid=peer.pid,
            uid=peer.uid,
            start_time=procfs.start_time(peer.pid),
            restore_tid=procfs.thread_in_our_namespace(peer.pid, int(tid)),
            name=name,
            flags=flags,
            group=group,
            send_line=peer.send,
        )

    def _greet(self, peer: Peer) -> None:
        """Inventory, with the memory of the devices attached as descriptors."""
        devices = self.silicon.devices
        first = f"0 {self._cuda_version} {len(devices)} {self._settings.dev_root or '-'}"
        peer.send_descriptors(first, [device.arena.fd for device in devices])
        for device in devices:
            peer.send(device.inventory_line())

    @contextlib.contextmanager
    def _watch_death(self, job: Job, peer: Peer) -> Iterator[None]:
        """A killed process releases everything even while a child of it still has its connection open."""
        try:
            pidfd = os.pidfd_open(job.pid)
        except OSError:
            yield
            return
        loop = asyncio.get_running_loop()

        def died() -> None:
            loop.remove_reader(pidfd)
            self.silicon.remove_job(job)
            peer.close()

        loop.add_reader(pidfd, died)
        try:
            yield
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)


def _listen(path: Path) -> socket.socket:
    if len(os.fsencode(path)) > SOCKET_PATH_LIMIT:
        raise OSError(f"the socket path is longer than {SOCKET_PATH_LIMIT} bytes: {path}")
    listener = socket.socket(socket.AF_UNIX)
    try:
        _remove_stale(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        listener.bind(str(path))
        path.chmod(0o666)  # like device nodes: every user may compute
        listener.listen(128)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _remove_stale(path: Path) -> None:
    """A socket that nobody listens on is left from a killed daemon."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink(missing_ok=True)
            return
    raise OSError(f"another daemon listens at {path}")


async def run(settings: Settings, *, lifeline: int | None = None) -> None:
    """Serves until SIGTERM, SIGINT, or the other end of the lifeline (a socket) is closed. Says when it is ready."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    daemon = Daemon(settings)
    if lifeline is None:
        await daemon.serve(stop, announce=lambda: print(f"ready at {settings.socket_path}", flush=True))
        return
    with socket.socket(fileno=lifeline) as starter:
        loop.add_reader(starter, stop.set)
        await daemon.serve(stop, announce=lambda: starter.sendall(b"r"))
