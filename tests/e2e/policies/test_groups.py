"""Groups: refused where they are written, as the daemons would refuse them; and what people see of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from chart_rules import GROUPS
from dra_kubeletplugin.apiserver import ApiServer, ApiServerError
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import decode_group

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"seats": 16, "jobs": ["a", "b"], "namespaces": ["ml"], "nodeSelector": {"pool": "rl"}},
        {"hostMemoryPerGPU": "80Gi", "lease": {"ttlSeconds": 60, "graceSeconds": 0}, "policy": "fifo"},
        {"hostMemoryPerGPU": 1048576},
        {"seats": 0},
        {"seats": 17},
        {"seats": "2"},
        {"jobs": ["a/b"]},
        {"jobs": [f"j{number}" for number in range(17)]},
        {"hostMemoryPerGPU": "80Gx"},
        {"hostMemoryPerGPU": "1k"},
        {"hostMemoryPerGPU": 1000},
        {"lease": {"ttlSeconds": 0}},
        {"policy": "lifo"},
        {"nodeSelector": {"pool": 1}},
    ],
    ids=lambda spec: json.dumps(spec)[:40],
)
async def test_a_group_is_refused_where_it_is_written_if_the_daemons_would_refuse_it(
    api: ApiServer, spec: dict[str, Any]
) -> None:
    name = f"g-{uuid4().hex[:8]}"
    body = {"apiVersion": GROUPS.api_version, "kind": "TimesliceGroup", "metadata": {"name": name}, "spec": spec}
    try:
        decode_group(body)
    except ConfigError:
        with pytest.raises(ApiServerError):
            await api.create(GROUPS, body)
    else:
        made = await api.create(GROUPS, body)
        await api.delete(GROUPS, name)
        assert decode_group(made).spec == decode_group(body).spec


@pytest.mark.parametrize("name", ["slot-0", "a.b", "a" * 41])
async def test_a_name_that_would_not_fit_is_refused_with_the_reason(api: ApiServer, name: str) -> None:
    body = {"apiVersion": GROUPS.api_version, "kind": "TimesliceGroup", "metadata": {"name": name}, "spec": {}}
    with pytest.raises(ApiServerError, match="group"):
        await api.create(GROUPS, body)


async def test_people_see_holder_waiting_devices_and_duty(api: ApiServer, make_group: Callable[..., Any]) -> None:
    name = await make_group()
    status = {"holder": "job-a", "waiting": 1, "deviceCount": 2, "dutyCycle": "61%", "records": {"any": {"thing": [1]}}}
    body = {"apiVersion": GROUPS.api_version, "kind": "TimesliceGroup", "metadata": {"name": name}, "status": status}
    async with _watched(name) as rows, asyncio.timeout(30):
        assert (await anext(rows)) == ["NAME", "HOLDER", "WAITING", "DEVICES", "DUTY", "AGE"]
        assert (await anext(rows))[0] == name
        told = await api.patch(GROUPS, name, body, subresource="status", how="apply", manager="test")
        assert told["status"]["records"] == {"any": {"thing": [1]}}
        while (await anext(rows))[:5] != [name, "job-a", "1", "2", "61%"]:
            pass  # an orchestrator that is installed writes its own words before and after


@asynccontextmanager
async def _watched(name: str) -> AsyncIterator[AsyncIterator[list[str]]]:
    """What kubectl prints of the group, line by line, at first and after each change."""
    command = ("kubectl", "get", "tsg", name, "--watch")
    watching = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        assert watching.stdout
        yield (line.decode().split() async for line in watching.stdout)
    finally:
        watching.kill()
        await watching.wait()
