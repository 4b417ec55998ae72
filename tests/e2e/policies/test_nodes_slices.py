"""A node writes slices of its own only."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import chart_rules
import pytest
from admission import NODE, OTHER_NODE
from chart_rules import SLICES
from dra_kubeletplugin.apiserver import ApiServer, ApiServerError

pytestmark = pytest.mark.timeout(120)


def slice_of(node: str, driver: str = "gpu.timeslice.dev", **where: Any) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, "devices": [], **(where or {"nodeName": node})}
    return {"metadata": {"name": f"slice-{uuid4().hex[:8]}"}, "spec": spec}


async def test_a_node_writes_slices_of_its_own_and_no_others(api: ApiServer, nodes: tuple[str, str]) -> None:
    token = await chart_rules.token_of(api, "timeslice-node", node=NODE)
    foreign = await api.create(SLICES, slice_of(OTHER_NODE))
    async with chart_rules.connected(token) as plugin:
        own = await plugin.create(SLICES, slice_of(NODE))
        own = await plugin.replace(SLICES, own)
        for body, why in (
            (slice_of(OTHER_NODE), f"the plugin of node {NODE} may not write a slice of node {OTHER_NODE}"),
            (slice_of(NODE, allNodes=True), "of many nodes"),
            (slice_of(NODE, "gpu.nvidia.com"), "may not write a slice of driver gpu.nvidia.com"),
        ):
            with pytest.raises(ApiServerError, match=why):
                await plugin.create(SLICES, body)
        with pytest.raises(ApiServerError, match="may not write a slice of node"):
            await plugin.replace(SLICES, foreign)
        with pytest.raises(ApiServerError, match="may not write a slice of node"):
            await plugin.delete(SLICES, foreign["metadata"]["name"])
        await plugin.delete(SLICES, own["metadata"]["name"])
    await api.delete(SLICES, foreign["metadata"]["name"])


async def test_a_token_that_is_bound_to_no_node_writes_no_slice(api: ApiServer, nodes: tuple[str, str]) -> None:
    token = await chart_rules.token_of(api, "timeslice-node")
    async with chart_rules.connected(token) as plugin:
        with pytest.raises(ApiServerError, match="not bound to a pod on a node"):
            await plugin.create(SLICES, slice_of(NODE))
