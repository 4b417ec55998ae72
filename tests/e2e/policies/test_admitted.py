"""Who may join a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import chart_rules
import pytest
from admission import JOB, refusal, settled
from chart_rules import CLAIM_TEMPLATES, CLAIMS, claim, exactly
from dra_kubeletplugin.apiserver import ApiServer

pytestmark = pytest.mark.timeout(120)


async def test_a_namespace_that_a_group_does_not_admit_is_told_who_is(
    api: ApiServer, namespace: str, make_group: Callable[..., Any]
) -> None:
    group = await make_group(namespaces=["team-x", "team-y"])
    body = claim(exactly("gpu", f"{group}.timeslice.dev"), labels=JOB)
    said = await settled(api, body, namespace, refused=True)
    assert f"group {group} does not admit namespace {namespace}; it admits team-x, team-y" in said
    assert "does not admit namespace" in await refusal(api, CLAIM_TEMPLATES, chart_rules.template(body), namespace)
    first = {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": f"{group}.timeslice.dev"}]}
    assert "does not admit namespace" in await refusal(api, CLAIMS, claim(first, labels=JOB), namespace)


async def test_admitted_namespaces_and_other_groups_are_not_refused(
    api: ApiServer, namespace: str, make_group: Callable[..., Any]
) -> None:
    closed, mine, open_ = await make_group(namespaces=[]), await make_group(namespaces=[namespace]), await make_group()
    await settled(api, claim(exactly("gpu", f"{closed}.timeslice.dev")), namespace, refused=True)
    for group in (mine, open_):
        body = claim(exactly("gpu", f"{group}.timeslice.dev"), labels=JOB)
        assert await refusal(api, CLAIMS, body, namespace) == ""
        assert await refusal(api, CLAIM_TEMPLATES, chart_rules.template(body), namespace) == ""


async def test_a_job_that_a_group_does_not_admit_is_told_who_is(
    api: ApiServer, namespace: str, make_group: Callable[..., Any]
) -> None:
    group = await make_group(jobs=["job-b", "job-c"])
    body = claim(exactly("gpu", f"{group}.timeslice.dev"), labels=JOB)
    said = await settled(api, body, namespace, refused=True)
    assert f"group {group} does not admit job job-a; it admits job-b, job-c" in said
    assert "does not admit job" in await refusal(api, CLAIM_TEMPLATES, chart_rules.template(body), namespace)
    allowed = claim(exactly("gpu", f"{group}.timeslice.dev"), labels={"timeslice.dev/job": "job-c"})
    assert await refusal(api, CLAIMS, allowed, namespace) == ""
