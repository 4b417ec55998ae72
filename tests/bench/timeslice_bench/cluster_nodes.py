"""Nodes that do not exist, known to the orchestrator as it knows real ones: by the token of a pod of theirs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from dra_kubeletplugin.apiserver import PODS, Object, Resource
from timeslice_api.tokens import AUDIENCE

from timeslice_bench.cluster import NAMESPACE, Bench, in_bursts, remove

ACCOUNTS = Resource("", "v1", "serviceaccounts")
ACCOUNT = "timeslice-node"
LASTS_S = 3600


@asynccontextmanager
async def node_tokens(made: Bench, nodes: Collection[str]) -> AsyncIterator[Mapping[str, str]]:
    """A token for each. Their pods are on no machine, so that Kubernetes removes them after a minute: dial before."""
    tokens: dict[str, str] = {}

    async def make(node: str) -> None:
        pod = await made.api.create(PODS, _pod(node), namespace=NAMESPACE)
        bound = {"apiVersion": "v1", "kind": "Pod", "name": node, "uid": pod["metadata"]["uid"]}
        spec = {"audiences": [AUDIENCE], "expirationSeconds": LASTS_S, "boundObjectRef": bound}
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = await made.api.create(ACCOUNTS, request, namespace=NAMESPACE, name=ACCOUNT, subresource="token")
        tokens[node] = answer["status"]["token"]

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
