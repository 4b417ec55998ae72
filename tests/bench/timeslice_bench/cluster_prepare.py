"""Prepare and unprepare on a node of the test cluster, called on the plugin's own socket as the kubelet does.

Claims and pods are real objects that the plugin reads from the real API server; records, CDI specs and sockets are the
node's own.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import grpc
from dra_kubeletplugin.kubelet_api import dra_v1_pb2 as pb
from dra_kubeletplugin.kubelet_api import dra_v1_pb2_grpc
from dra_kubeletplugin.sockets import alive

from timeslice_bench.case import Effort, Measurement, p50, spread
from timeslice_bench.cluster import DRIVER, NODE, Bench, bench
from timeslice_bench.cluster_claims import JOBS, SEATS, Allocated, allocated_claims
from timeslice_bench.process_stats import usage

if TYPE_CHECKING:
    from dra_kubeletplugin.kubelet_api.dra_v1_pb2_grpc import DRAPluginAsyncStub

CALL_LIMIT_S = 45.0  # the kubelet's own
AT_ONCE = 64

Step = Literal["prepare", "unprepare"]
STEPS: tuple[Step, ...] = ("prepare", "unprepare")


class Kubelet:
    """Calls the plugin, one claim per call, as the kubelet does for a pod with one claim."""

    def __init__(self, stub: DRAPluginAsyncStub) -> None:
        self._stub = stub

    async def empty(self) -> float:
        """Seconds that a call for no claims takes."""
        began = time.perf_counter()
        await self._stub.NodePrepareResources(pb.NodePrepareResourcesRequest(), timeout=CALL_LIMIT_S)
        return time.perf_counter() - began

    async def call(self, step: Step, claim: Allocated) -> float:
        """Seconds until the answer. ValueError when the plugin refuses."""
        asked = [pb.Claim(namespace=claim.namespace, name=claim.name, uid=claim.uid)]
        began = time.perf_counter()
        if step == "prepare":
            prepared = await self._stub.NodePrepareResources(
                pb.NodePrepareResourcesRequest(claims=asked), timeout=CALL_LIMIT_S
            )
            error = prepared.claims[claim.uid].error
        else:
            unprepared = await self._stub.NodeUnprepareResources(
                pb.NodeUnprepareResourcesRequest(claims=asked), timeout=CALL_LIMIT_S
            )
            error = unprepared.claims[claim.uid].error
        if error:
            raise ValueError(f"{step} of {claim.name}: {error}")
        return time.perf_counter() - began

    async def at_once(self, step: Step, claims: Sequence[Allocated]) -> float:
        """Seconds until the last has its answer."""
        began = time.perf_counter()
        await asyncio.gather(*(self.call(step, claim) for claim in claims))
        return time.perf_counter() - began


@dataclass
class Samples:
    """Of one step: seconds of each call alone, processor seconds of the node for all these, seconds of all at once."""

    alone: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    together: list[float] = field(default_factory=list)


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`prepare_*` and `unprepare_*`; `profile` is of no use here."""
    samples: dict[Step, Samples] = {step: Samples() for step in STEPS}
    async with bench() as made, made.group(seats=SEATS, jobs=JOBS) as group, kubelet(made, directory) as caller:
        pod = next(pod for pod in await made.product_pods("node") if pod["spec"]["nodeName"] == NODE)
        pid = await made.pid(pod)
        empty_s = p50([await caller.empty() for _ in range(effort.empty_calls)])
        for number in range(effort.prepare_rounds + 1):
            async with unprepared(made, group, caller) as claims:
                alone = await _alone(caller, claims, pid)
            async with unprepared(made, group, caller) as claims:
                together = {step: await caller.at_once(step, claims) for step in STEPS}
            if number:  # the first round makes connections and imports
                for step, found in samples.items():
                    found.alone += alone[step].alone
                    found.cpu_s += alone[step].cpu_s
                    found.together.append(together[step])
    return [result for step in STEPS for result in _results(step, samples[step], empty_s)]


@asynccontextmanager
async def unprepared(made: Bench, group: str, caller: Kubelet) -> AsyncIterator[list[Allocated]]:
    """New claims, since the plugin knows for a while those that it has unprepared. Unprepared again afterwards."""
    async with allocated_claims(made, group, AT_ONCE) as claims:
        try:
            yield claims
        finally:
            await caller.at_once("unprepare", claims)


async def _alone(caller: Kubelet, claims: Sequence[Allocated], pid: int) -> dict[Step, Samples]:
    found: dict[Step, Samples] = {}
    for step in STEPS:
        before = usage(pid).cpu_s
        times = [await caller.call(step, claim) for claim in claims]
        found[step] = Samples(times, usage(pid).cpu_s - before)
    return found


@asynccontextmanager
async def kubelet(made: Bench, directory: Path) -> AsyncIterator[Kubelet]:
    """A connection to the plugin of node-a."""
    folder = made.cluster.nodes[NODE].folder.var_lib / "kubelet/plugins" / DRIVER
    short = directory / "plugin"  # a unix socket's path has 107 characters at most
    short.symlink_to(folder)
    (socket,) = [path for path in short.glob("dra*.sock") if alive(path)]
    async with grpc.aio.insecure_channel(
        f"unix:{socket}", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        yield Kubelet(cast("DRAPluginAsyncStub", dra_v1_pb2_grpc.DRAPluginStub(channel)))


def _results(step: Step, found: Samples, empty_s: float) -> list[Measurement]:
    milliseconds = [seconds * 1000 for seconds in found.alone]
    p99 = statistics.quantiles(milliseconds, n=100)[98]
    cost = f"{found.cpu_s / len(found.alone) * 1000:.1f} ms of processor time of the node each"
    together = ", ".join(f"{seconds:.2f} s" for seconds in found.together)
    return [
        Measurement(f"{step}_p50_ms", p50(milliseconds), p50(found.alone) / empty_s, f"{spread(milliseconds)}; {cost}"),
        Measurement(f"{step}_p99_ms", p99, p99 / 1000 / empty_s),
        Measurement(f"{step}_64_s", p50(found.together), p50(found.together) / empty_s, f"median of {together}"),
    ]
