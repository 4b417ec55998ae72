"""What the daemons use when nothing happens: the node on a worker, and the orchestrator with very many groups."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from dra_kubeletplugin.apiserver import LEASES, Object, Resource

from timeslice_bench.case import Effort, Measurement
from timeslice_bench.child import child, module
from timeslice_bench.cluster import (
    GROUPS,
    NAMESPACE,
    NODE,
    Bench,
    NotReadyError,
    bench,
    group_object,
    in_bursts,
    remove,
)
from timeslice_bench.cluster_nodes import node_tokens
from timeslice_bench.layout import Group, Layout
from timeslice_bench.process_stats import Usage, usage

GROUP_COUNT = 500
SHARERS = 4  # jobs that are members of each
PORT = 7070
CONFIG_MAPS = Resource("", "v1", "configmaps")
START_LIMIT_S = 180.0
REMOVAL_LIMIT_S = 600.0  # of the groups, which go one after the other
NOWHERE = {"nodeSelector": {"timeslice.dev/bench": "agents-of-the-bench"}}


async def measure_node(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`node_*`; `profile` is of no use here."""
    async with bench() as made:
        pod = next(pod for pod in await made.product_pods("node") if pod["spec"]["nodeName"] == NODE)
        async with made.group():
            return await _at_rest("node", await made.pid(pod), effort, "one group, nothing prepared")


async def measure_orchestrator(
    effort: Effort, directory: Path, wanted: set[str], profile: Path | None
) -> list[Measurement]:
    """`orchestrator_*`; `profile` is of no use here."""
    async with bench() as made, _many_members(made, directory) as pod:
        what = f"{GROUP_COUNT} groups, {GROUP_COUNT * SHARERS} members on as many nodes as groups"
        return await _at_rest("orchestrator", await made.pid(pod), effort, what)


async def _at_rest(name: str, pid: int, effort: Effort, what: str) -> list[Measurement]:
    await asyncio.sleep(effort.settle_s)
    began, before = time.monotonic(), usage(pid)
    await asyncio.sleep(effort.rest_s)
    seconds, after = time.monotonic() - began, usage(pid)
    percent = (after.cpu_s - before.cpu_s) / seconds * 100
    return [
        Measurement(f"{name}_rss_mb", after.rss / 1e6, detail=_memory(what, after)),
        Measurement(f"{name}_cpu_percent", percent, detail=f"over {seconds:.0f} s; {what}"),
    ]


def _memory(what: str, used: Usage) -> str:
    return f"{used.anonymous / 1e6:.0f} MB of it its own, the rest files that processes share; {what}"


@asynccontextmanager
async def _many_members(made: Bench, directory: Path) -> AsyncIterator[Object]:
    """The leader's pod, when it knows them all."""
    layout = Layout(tuple(Group(f"bench-{number}", sharers=SHARERS) for number in range(GROUP_COUNT)))
    names = [group.group_id for group in layout.groups]
    pod = await _leader(made)
    target = f"{pod['status']['podIP']}:{PORT}"
    try:
        await in_bursts(lambda name: made.api.create(GROUPS, group_object(name, seats=SHARERS, **NOWHERE)), names)
        authority = await made.api.get(CONFIG_MAPS, "timeslice-orchestrator-ca", namespace=NAMESPACE)
        ca = directory / "ca.crt"
        ca.write_text(authority["data"]["ca.crt"])
        async with node_tokens(made, [node for group in layout.groups for node in group.node_names()]) as found:
            tokens = directory / "tokens.json"
            tokens.write_text(json.dumps(found))
            agents = module("agents_child", target, layout.to_json(), str(ca), "timeslice-orchestrator", str(tokens))
            async with child("agents", agents, directory, start_limit_s=START_LIMIT_S):
                yield pod
    finally:
        await remove(made.api, GROUPS, names, limit_s=REMOVAL_LIMIT_S)


async def _leader(made: Bench) -> Object:
    lease = await made.api.get(LEASES, "timeslice-orchestrator", namespace=NAMESPACE)
    holder = str(lease["spec"].get("holderIdentity") or "")
    for pod in await made.product_pods("orchestrator"):
        if holder.startswith(pod["metadata"]["name"]):
            return pod
    raise NotReadyError("no orchestrator leads")
