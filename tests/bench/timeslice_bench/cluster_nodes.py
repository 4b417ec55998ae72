"""Nodes that do not exist, known to the orchestrator as it knows real ones: by the token of a pod of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from dra_kubeletplugin.apiserver import PODS, Object
from timeslice_driver.pod_tokens import request_token

from timeslice_bench.cluster import NAMESPACE, Bench, in_bursts, remove

ACCOUNT = "timeslice-node"


@asynccontextmanager
async def node_tokens(made: Bench, nodes: Collection[str]) -> AsyncIterator[Mapping[str, str]]:
    """A token for each. Their pods are on no machine, so that Kubernetes removes them after a minute: dial before."""
    tokens: dict[str, str] = {}

    async def make(node: str) -> None:
        pod = await made.api.create(PODS, _pod(node), namespace=NAMESPACE)
        tokens[node] = (await request_token(made.api, pod))["token"]

    try:
        await in_bursts(make, nodes)
        yield tokens
    finally:
        await remove(made.api, PODS, nodes, namespace=NAMESPACE)


def _pod(node: str) -> Object:
    """Bound to a node that is none, so nothing of it ever runs."""
    return {
        "metadata": {"name": node, "labels": {"timeslice.dev/bench": "node"}},
        "spec": {
            "nodeName": node,
            "serviceAccountName": ACCOUNT,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "none", "image": "none", "imagePullPolicy": "Never"}],
        },
    }
