"""How long nobody is granted when the orchestrator that leads is killed, or stopped, and another one stands by.

The whole way is timed, to a grant by the successor: it takes the lead, reads the records, listens; the node finds it
and says hello, and the client finds it, both as they are shipped. Without Kubernetes the two share a state directory;
with it a Lease at the API server of the tests, and after a kill the time counts from the end of that Lease.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from timeslice import OrchestratorClient

from timeslice_bench.case import Effort, Measurement, p50, spread
from timeslice_bench.child import Child, child, module
from timeslice_bench.snapshots import GROUP, emulated, node_command

LEASE_S = 3.0  # short, to measure often; what follows its end does not depend on it
LIMIT_S = 60.0
MEMORY = 64 << 20


@dataclass(frozen=True)
class Office:
    """What the two stand for: the options of both, and the API server where there is one."""

    directory: Path
    hosts: tuple[str, str]
    options: tuple[str, ...]
    api_server: Child | None = None

    @property
    def address(self) -> str:
        """For those who look for the leader."""
        return ",".join(self.hosts)

    async def over_at(self, began: float) -> float:
        """When the term of a leader that was killed at `began` is over (both in Unix seconds)."""
        if self.api_server is None:
            return began
        return float((await self.api_server.ask("", LIMIT_S))["renewed_at"]) + LEASE_S


class Pair:
    """One leads, the other one follows."""

    def __init__(self, office: Office, stack: AsyncExitStack) -> None:
        self._office = office
        self._stack = stack
        self._started = 0

    async def start(self) -> None:
        """Starts both."""
        self.leader = await self._candidate()
        await self.leader.ask("", LIMIT_S)
        self.follower = await self._candidate()

    async def change(self) -> None:
        """After the leader's end: the other one leads, and a new one stands by."""
        await self.leader.process.wait()
        self.leader = self.follower
        await self.leader.ask("", LIMIT_S)
        self.follower = await self._candidate()
        await asyncio.sleep(0.5)  # it has to stand by, and has nothing to say then

    async def _candidate(self) -> Child:
        host = self._office.hosts[self._started % 2]
        name = f"candidate-{self._started}"
        self._started += 1
        command = module("candidate_child", "--listen", host, *self._office.options)
        return await self._stack.enter_async_context(child(name, command, self._office.directory))


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`takeover_*` of both kinds; `profile` is of no use here, as the orchestrator dies."""
    results = []
    for prefix, office in (("takeover", _by_lock), ("takeover_lease", _by_lease)):
        cases = {f"{prefix}_after_kill_ms": signal.SIGKILL, f"{prefix}_clean_ms": signal.SIGTERM}
        if not wanted.isdisjoint(cases):
            (directory / prefix).mkdir()
            async with office(directory / prefix) as opened:
                times = await _rounds(opened, cases, effort.takeovers)
            results += [Measurement(case, p50(ms), None, spread(ms)) for case, ms in times.items()]
    return results


async def _rounds(office: Office, cases: dict[str, signal.Signals], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each case."""
    times: dict[str, list[float]] = {case: [] for case in cases}
    async with AsyncExitStack() as stack:
        emulator = await stack.enter_async_context(emulated(MEMORY))
        pair = Pair(office, stack)
        await pair.start()
        command = node_command(emulator, office.directory / "node.sock", orchestrator=office.address)
        await stack.enter_async_context(child("node", command, office.directory, env=emulator.variables))
        client = OrchestratorClient(office.address, job_id="job-a", group_id=GROUP, node_socket="")
        stack.callback(client.close)
        await asyncio.to_thread(_turn, client)
        for case, number in [each for each in cases.items() for _ in range(rounds)]:
            await asyncio.to_thread(_turn, client)
            times[case].append(1000 * await _timed(office, pair, client, number))
            await pair.change()
    return times


async def _timed(office: Office, pair: Pair, client: OrchestratorClient, number: signal.Signals) -> float:
    began = time.time()
    pair.leader.process.send_signal(number)
    over_at = await office.over_at(began) if number is signal.SIGKILL else began
    await asyncio.to_thread(_turn, client)
    return time.time() - over_at


def _turn(client: OrchestratorClient) -> None:
    client.acquire(timeout=LIMIT_S)
    client.yield_()


@asynccontextmanager
async def _by_lock(directory: Path) -> AsyncIterator[Office]:
    yield Office(directory, _hosts(), ("--state-dir", str(directory / "state")))


@asynccontextmanager
async def _by_lease(directory: Path) -> AsyncIterator[Office]:
    kubeconfig = directory / "kubeconfig"
    async with child("api server", module("api_server_child", str(kubeconfig), GROUP), directory) as server:
        options = ("--kubeconfig", str(kubeconfig), "--lease-s", str(LEASE_S))
        yield Office(directory, _hosts(), options, server)


def _hosts() -> tuple[str, str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return f"127.0.0.1:{port}", f"127.0.0.2:{port}"
