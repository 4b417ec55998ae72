"""A node says of claims what is its own to say."""

from __future__ import annotations

from typing import Any

import chart_rules
import pytest
from admission import JOB, NODE, OTHER_NODE
from chart_rules import CLAIMS, claim, exactly
from dra_kubeletplugin.apiserver import ApiServer, ForbiddenError, InvalidError, Resource

pytestmark = pytest.mark.timeout(120)

ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")


def on(node: str, driver: str = "gpu.timeslice.dev") -> dict[str, Any]:
    return {"request": "gpu", "driver": driver, "pool": node, "device": "gpu-0-rl-a"}


async def allocated(api: ApiServer, namespace: str, *results: dict[str, Any]) -> dict[str, Any]:
    made = await api.create(CLAIMS, claim(exactly("gpu", count=max(1, len(results))), labels=JOB), namespace=namespace)
    selector = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}]}
    made["status"] = {"allocation": {"devices": {"results": list(results)}, "nodeSelector": selector}}
    return await api.replace(CLAIMS, made, subresource="status")


def status_of(made: dict[str, Any], *devices: dict[str, Any]) -> dict[str, Any]:
    refused = {"type": "Ready", "status": "False", "reason": "GroupConflict", "message": ""}
    conditions = [refused | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]
    said = [{key: each[key] for key in ("driver", "pool", "device")} | {"conditions": conditions} for each in devices]
    metadata = {key: made["metadata"][key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": CLAIMS.api_version,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "status": {"devices": said},
    }


async def say(plugin: ApiServer, body: dict[str, Any], manager: str = "gpu.timeslice.dev") -> dict[str, Any]:
    metadata = body["metadata"]
    return await plugin.patch(
        CLAIMS,
        metadata["name"],
        body,
        namespace=metadata["namespace"],
        subresource="status",
        how="apply",
        manager=manager,
    )


async def test_a_node_says_of_its_own_devices_what_it_will(
    api: ApiServer, namespace: str, nodes: tuple[str, str]
) -> None:
    made = await allocated(api, namespace, on(NODE), on(NODE, "nic.example.com"))
    await say(api, status_of(made, on(NODE, "nic.example.com")), "somebody")
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node", node=NODE)) as plugin:
        told = await say(plugin, status_of(made, on(NODE)))
        assert {device["driver"] for device in told["status"]["devices"]} == {"gpu.timeslice.dev", "nic.example.com"}
        told = await say(plugin, status_of(made))  # and takes it back
        assert [device["driver"] for device in told["status"]["devices"]] == ["nic.example.com"]


async def test_a_node_says_nothing_of_devices_on_other_nodes(
    api: ApiServer, namespace: str, nodes: tuple[str, str]
) -> None:
    made = await allocated(api, namespace, on(NODE))
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node", node=OTHER_NODE)) as plugin:
        with pytest.raises((ForbiddenError, InvalidError), match="timeslice-node"):
            await say(plugin, status_of(made, on(NODE)))


@pytest.mark.parametrize("more_rights", [False, True], ids=["by its rights", "by the policy"])
async def test_a_node_says_nothing_of_the_devices_of_other_drivers(
    api: ApiServer, namespace: str, nodes: tuple[str, str], more_rights: bool
) -> None:
    made = await allocated(api, namespace, on(NODE), on(NODE, "nic.example.com"))
    if more_rights:
        await allow_other_driver(api, namespace)
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node", node=NODE)) as plugin:
        said = "may change only what a claim says of its own devices" if more_rights else "resourceclaims/driver"
        with pytest.raises((ForbiddenError, InvalidError), match=said):
            await say(plugin, status_of(made, on(NODE, "nic.example.com")))


async def allow_other_driver(api: ApiServer, namespace: str) -> None:
    """As a mistaken administrator, or a server before 1.36, would."""
    rule = {
        "apiGroups": ["resource.k8s.io"],
        "resources": ["resourceclaims/driver"],
        "resourceNames": ["nic.example.com"],
        "verbs": ["associated-node:patch"],
    }
    await api.create(ROLES, {"metadata": {"name": "more"}, "rules": [rule]}, namespace=namespace)
    account = {"kind": "ServiceAccount", "name": "timeslice-node", "namespace": chart_rules.NAMESPACE}
    role = {"apiGroup": ROLES.group, "kind": "Role", "name": "more"}
    binding = {"metadata": {"name": "more"}, "roleRef": role, "subjects": [account]}
    await api.create(ROLE_BINDINGS, binding, namespace=namespace)


async def test_a_node_cannot_give_or_take_devices(api: ApiServer, namespace: str, nodes: tuple[str, str]) -> None:
    made = await allocated(api, namespace, on(NODE), on(NODE, "nic.example.com"))
    less = status_of(made) | {"status": {"allocation": {"devices": {"results": [on(NODE)]}}}}
    async with chart_rules.connected(await chart_rules.token_of(api, "timeslice-node", node=NODE)) as plugin:
        with pytest.raises((ForbiddenError, InvalidError), match="timeslice-node"):
            await say(plugin, less)
