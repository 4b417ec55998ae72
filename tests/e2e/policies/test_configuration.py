"""Configuration in claims: refused where it is written, as the driver would refuse it."""

from __future__ import annotations

import json
from typing import Any

import chart_rules
import pytest
from admission import JOB, KIND, refusal
from chart_rules import CLAIM_TEMPLATES, CLAIMS, claim, config, exactly
from dra_kubeletplugin.apiserver import ApiServer
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import decode_config

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize(
    "parameters",
    [
        KIND,
        KIND | {"group": "rl-a", "job": "a", "backend": "cuda"},
        KIND | {"grup": "rl-a"},
        KIND | {"kind": "GpuConfig"},
        KIND | {"apiVersion": "timeslice.dev/v2"},
        {"kind": "TimesliceConfig"},
        {"apiVersion": "timeslice.dev/v1alpha1"},
        KIND | {"job": 3},
        KIND | {"job": "a/b"},
        KIND | {"job": "j" * 64},
        KIND | {"job": ""},
        KIND | {"group": "slot-3"},
        KIND | {"group": "a.b"},
        KIND | {"backend": "criu"},
        KIND | {"backend": 1},
        {},
    ],
    ids=lambda parameters: json.dumps({key: value for key, value in parameters.items() if KIND.get(key) != value})[:40],
)
async def test_configuration_is_refused_where_it_is_written_if_the_driver_would_refuse_it(
    api: ApiServer, namespace: str, parameters: dict[str, Any]
) -> None:
    try:
        decode_config(parameters)
    except ConfigError:
        good = False
    else:
        good = True
    body = claim(exactly("gpu"), labels=JOB, config=config(**parameters))
    said = await refusal(api, CLAIMS, body, namespace)
    of_template = await refusal(api, CLAIM_TEMPLATES, chart_rules.template(body), namespace)
    assert (said == "", of_template == "") == (good, good), f"{said} / {of_template}"


async def test_a_typing_mistake_in_the_configuration_is_named(api: ApiServer, namespace: str) -> None:
    body = claim(exactly("gpu"), labels=JOB, config=config(**KIND, grup="rl-a"))
    assert "grup is not a field of it (it has apiVersion, backend, group, job, kind)" in await refusal(
        api, CLAIMS, body, namespace
    )


async def test_configuration_for_other_drivers_is_none_of_ours(api: ApiServer, namespace: str) -> None:
    other = [{"opaque": {"driver": "gpu.nvidia.com", "parameters": {"kind": "GpuConfig"}}}]
    assert await refusal(api, CLAIMS, claim(exactly("gpu"), labels=JOB, config=other), namespace) == ""
