"""A node makes tokens of pods, for Timeslice alone."""

from __future__ import annotations

from typing import Any

import chart_rules
import pytest
from admission import NODE, OTHER_NODE
from chart_rules import ACCOUNTS, PODS
from dra_kubeletplugin.apiserver import ApiServer, ApiServerError
from timeslice_orchestrator.access.caller import Kind
from timeslice_orchestrator.kubernetes.token_reviews import TokenReviews

pytestmark = pytest.mark.timeout(120)


async def pod_in(api: ApiServer, namespace: str) -> dict[str, Any]:
    """A pod; it need not run for somebody to make a token for it."""
    await api.create(ACCOUNTS, {"metadata": {"name": "trainer", "namespace": namespace}})
    containers = [{"name": "none", "image": "none.invalid/none", "imagePullPolicy": "Never"}]
    of_node = {"nodeName": NODE, "serviceAccountName": "trainer", "terminationGracePeriodSeconds": 0}
    metadata = {"generateName": "job-", "namespace": namespace}
    return await api.create(PODS, {"metadata": metadata, "spec": of_node | {"containers": containers}})


async def token_for(plugin: ApiServer, pod: dict[str, Any], **changes: Any) -> str:
    metadata = pod["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": metadata["name"], "uid": metadata["uid"]}
    spec = {"audiences": ["timeslice"], "expirationSeconds": 3600, "boundObjectRef": bound} | changes
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
    account, namespace = pod["spec"]["serviceAccountName"], metadata["namespace"]
    answer = await plugin.create(ACCOUNTS, body, namespace=namespace, name=account, subresource="token")
    return str(answer["status"]["token"])


async def test_a_node_makes_tokens_of_pods_for_timeslice_and_the_orchestrator_knows_the_pod_by_them(
    api: ApiServer, namespace: str, nodes: tuple[str, str]
) -> None:
    pod = await pod_in(api, namespace)
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node", node=NODE)) as plugin:
        token = await token_for(plugin, pod)
    caller = await TokenReviews(api).caller(token)
    assert (caller.kind, caller.pod_uid, caller.node) == (Kind.POD, pod["metadata"]["uid"], NODE)
    assert caller.name == f"pod {namespace}/{pod['metadata']['name']}"


async def test_a_node_makes_no_token_for_anything_else(api: ApiServer, namespace: str, nodes: tuple[str, str]) -> None:
    pod, agent = await pod_in(api, namespace), await chart_rules.pod_of(api, "timeslice-node", OTHER_NODE)
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node", node=NODE)) as plugin:
        for whose, changes, why in (
            (pod, {"audiences": ["https://kubernetes.default.svc"]}, "for the audience timeslice only"),
            (pod, {"audiences": ["timeslice", "vault"]}, "for the audience timeslice only"),
            (pod, {"boundObjectRef": None}, "bound to a pod only"),
            (agent, {}, "may not make tokens of its own service account"),
        ):
            with pytest.raises(ApiServerError, match=why):
                await token_for(plugin, whose, **changes)
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node")) as plugin:
        with pytest.raises(ApiServerError, match="not bound to a pod on a node"):
            await token_for(plugin, pod)
