"""What the API server says of an object: takes it, or refuses it and says why."""

from __future__ import annotations

import asyncio
from typing import Any

from chart_rules import CLAIMS, claim, config, exactly
from dra_kubeletplugin.apiserver import ApiServer, ForbiddenError, InvalidError

KIND = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig"}
JOB = {"timeslice.dev/job": "job-a"}
NODE, OTHER_NODE = "timeslice-test-a", "timeslice-test-b"
IN_FORCE_S = 30.0  # until a new policy must be in force


async def in_force(api: ApiServer) -> None:
    """Policies that have just been made take some seconds: waits until each kind of them has refused or mended."""
    async with asyncio.timeout(IN_FORCE_S):
        while True:
            made = await api.create(CLAIMS, claim(exactly("gpu"), labels=JOB), namespace="default")
            await api.delete(CLAIMS, made["metadata"]["name"], namespace="default")
            bad = claim(exactly("gpu"), config=config(nothing=1))
            if "constraints" in made["spec"]["devices"] and await refusal(api, CLAIMS, bad, "default"):
                return
            await asyncio.sleep(0.5)


async def refusal(api: ApiServer, resource: Any, body: dict[str, Any], namespace: str) -> str:
    """What the API server says against it; empty when it takes it (and it is removed again)."""
    try:
        made = await api.create(resource, body, namespace=namespace)
    except (ForbiddenError, InvalidError) as error:
        return str(error)
    await api.delete(resource, made["metadata"]["name"], namespace=namespace)
    return ""


async def settled(api: ApiServer, body: dict[str, Any], namespace: str, *, refused: bool) -> str:
    """What is said once the API server has noticed a new group."""
    async with asyncio.timeout(IN_FORCE_S):
        while bool(said := await refusal(api, CLAIMS, body, namespace)) != refused:
            await asyncio.sleep(0.2)
    return said
