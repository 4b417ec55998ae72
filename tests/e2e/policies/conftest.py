"""The API server with the rules of the chart in force, and what their tests make there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import chart_rules
import pytest
from admission import NODE, OTHER_NODE, in_force
from chart_rules import GROUPS, NAMESPACES, NODES, PODS
from dra_kubeletplugin.apiserver import ApiServer, NotFoundError


@pytest.fixture(scope="module")
def rules() -> Iterator[None]:
    yield from chart_rules.rules()


@pytest.fixture
async def api(rules: None) -> AsyncIterator[ApiServer]:
    async with chart_rules.connected() as connection:
        await in_force(connection)
        yield connection


@pytest.fixture
async def namespace(api: ApiServer) -> AsyncIterator[str]:
    name = f"team-{uuid4().hex[:8]}"
    await api.create(NAMESPACES, {"metadata": {"name": name}})
    yield name
    await api.delete(NAMESPACES, name)


@pytest.fixture
async def nodes(api: ApiServer) -> AsyncIterator[tuple[str, str]]:
    """Two Node objects without a kubelet, so that nobody else writes what is theirs."""
    for name in (NODE, OTHER_NODE):
        await api.create(NODES, {"metadata": {"name": name}})
    yield NODE, OTHER_NODE
    for name in (NODE, OTHER_NODE):
        await api.delete(NODES, name)
    for pod in (await api.list(PODS, namespace=chart_rules.NAMESPACE))[0]:
        if pod["spec"].get("nodeName") in (NODE, OTHER_NODE):
            await api.delete(PODS, pod["metadata"]["name"], namespace=chart_rules.NAMESPACE)


@pytest.fixture
async def make_group(api: ApiServer) -> AsyncIterator[Callable[..., Any]]:
    made: list[str] = []

    async def make(**spec: Any) -> str:
        name = f"g-{uuid4().hex[:8]}"
        await api.create(
            GROUPS,
            {"apiVersion": GROUPS.api_version, "kind": "TimesliceGroup", "metadata": {"name": name}, "spec": spec},
        )
        made.append(name)
        return name

    yield make
    for name in made:
        with contextlib.suppress(NotFoundError):
            await api.delete(GROUPS, name)
