"""What is filled into claims that ask for a group."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import chart_rules
import pytest
from admission import JOB, KIND, refusal
from chart_rules import CLAIM_TEMPLATES, CLAIMS, claim, config, exactly
from dra_kubeletplugin.apiserver import ApiServer
from timeslice_api.kinds import capacity_key

pytestmark = pytest.mark.timeout(120)

UUID = {"distinctAttribute": "gpu.timeslice.dev/uuid"}
SLOT = {"matchAttribute": "gpu.timeslice.dev/slot"}


async def filled(api: ApiServer, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    """The claim as it is stored."""
    return await api.create(CLAIMS, body, namespace=namespace)


async def test_a_claim_that_names_class_and_count_gets_the_rest(api: ApiServer, namespace: str) -> None:
    made = await filled(api, namespace, claim(exactly("gpu", count=2), labels=JOB))
    devices = made["spec"]["devices"]
    assert devices["requests"][0]["exactly"]["capacity"] == {"requests": {"job_job_a": "1"}}
    assert devices["constraints"] == [{"requests": ["gpu"], **SLOT}]
    assert made["metadata"]["labels"] == {**JOB, "timeslice.dev/group": "rl-a"}


async def test_only_requests_for_a_group_are_touched(api: ApiServer, namespace: str) -> None:
    body = claim(exactly("train"), exactly("nic", "nics.example.com"), exactly("judge"), labels=JOB)
    devices = (await filled(api, namespace, body))["spec"]["devices"]
    capacities = [request["exactly"].get("capacity") for request in devices["requests"]]
    assert capacities == [{"requests": {"job_job_a": "1"}}, None, {"requests": {"job_job_a": "1"}}]
    assert devices["constraints"] == [{"requests": ["train", "judge"], **SLOT}]


async def test_alternatives_of_a_request_are_filled_in_each(api: ApiServer, namespace: str) -> None:
    choices = [
        {"name": "shared", "deviceClassName": "rl-a.timeslice.dev"},
        {"name": "whole", "deviceClassName": "gpu.example.com"},
        {"name": "other", "deviceClassName": "rl-b.timeslice.dev"},
    ]
    made = await filled(api, namespace, claim({"name": "gpu", "firstAvailable": choices}, labels=JOB))
    (request,) = made["spec"]["devices"]["requests"]
    key = {"requests": {"job_job_a": "1"}}
    assert [choice.get("capacity") for choice in request["firstAvailable"]] == [key, None, key]
    assert made["spec"]["devices"]["constraints"] == [{"requests": ["gpu"], **SLOT}]
    assert "timeslice.dev/group" not in made["metadata"]["labels"]  # it is in two


async def test_values_that_are_there_are_kept(api: ApiServer, namespace: str) -> None:
    constraint = {"requests": ["a", "b"], **UUID}
    body = claim(
        exactly("a", capacity={"requests": {"hostMemory": "20Gi"}}),
        exactly("b", capacity={"requests": {"job_mine": "1"}}),
        labels=JOB | {"timeslice.dev/group": "said-by-me"},
        constraints=[constraint],
    )
    made = await filled(api, namespace, body)
    capacities = [request["exactly"]["capacity"]["requests"] for request in made["spec"]["devices"]["requests"]]
    assert capacities == [{"hostMemory": "20Gi", "job_job_a": "1"}, {"job_mine": "1"}]
    assert made["spec"]["devices"]["constraints"] == [constraint]
    assert made["metadata"]["labels"]["timeslice.dev/group"] == "said-by-me"


@pytest.mark.parametrize("constraint", [UUID, SLOT])
async def test_either_constraint_is_enough(api: ApiServer, namespace: str, constraint: dict[str, str]) -> None:
    body = claim(exactly("gpu", count=2), labels=JOB, constraints=[{"requests": ["gpu"], **constraint}])
    assert (await filled(api, namespace, body))["spec"]["devices"]["constraints"] == [
        {"requests": ["gpu"], **constraint}
    ]


async def test_a_capacity_written_by_hand_keeps_no_gpus_apart(api: ApiServer, namespace: str) -> None:
    body = claim(exactly("a", capacity={"requests": {"job_mine": "1"}}), exactly("b"), labels=JOB)
    made = await filled(api, namespace, body)
    assert made["spec"]["devices"]["constraints"] == [{"requests": ["a", "b"], **UUID}]


async def test_other_constraints_stay_beside_the_new_one(api: ApiServer, namespace: str) -> None:
    same_root = {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
    made = await filled(api, namespace, claim(exactly("gpu", count=2), labels=JOB, constraints=[same_root]))
    assert made["spec"]["devices"]["constraints"] == [same_root, {"requests": ["gpu"], **SLOT}]


async def test_a_job_in_the_configuration_wins_over_the_label(api: ApiServer, namespace: str) -> None:
    made = await filled(api, namespace, claim(exactly("gpu"), labels=JOB, config=config(**KIND, job="other.job")))
    assert made["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"] == {"job_other_job": "1"}


@pytest.mark.parametrize("job", ["a", "team-a.trainer_1", "j" * 28, "j" * 29, "a" * 20 + "-" + "b" * 42, "A-.-B"])
async def test_the_capacity_of_a_job_is_named_as_the_nodes_name_it(api: ApiServer, namespace: str, job: str) -> None:
    made = await filled(api, namespace, claim(exactly("gpu"), labels={"timeslice.dev/job": job}))
    assert made["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"] == {capacity_key(job): "1"}


async def test_a_claim_without_a_job_gets_distinct_gpus_all_the_same(api: ApiServer, namespace: str) -> None:
    body = claim(exactly("gpu", count=2))
    del body["metadata"]["labels"]
    made = await filled(api, namespace, body)
    assert "capacity" not in made["spec"]["devices"]["requests"][0]["exactly"]
    assert made["spec"]["devices"]["constraints"] == [{"requests": ["gpu"], **UUID}]
    assert made["metadata"]["labels"] == {"timeslice.dev/group": "rl-a"}


async def test_claims_that_ask_for_no_group_are_as_they_were(api: ApiServer, namespace: str) -> None:
    body = claim(exactly("gpu", "gpu.nvidia.com", count=2), labels=JOB)
    made = await filled(api, namespace, body)
    assert "constraints" not in made["spec"]["devices"]
    assert "capacity" not in made["spec"]["devices"]["requests"][0]["exactly"]
    assert made["metadata"]["labels"] == JOB


@pytest.mark.parametrize("spec", [{}, {"devices": {}}, {"devices": {"requests": []}}], ids=str)
async def test_claims_that_ask_for_nothing_are_none_of_ours(
    api: ApiServer, namespace: str, spec: dict[str, Any]
) -> None:
    for resource, body in ((CLAIMS, spec), (CLAIM_TEMPLATES, {"spec": spec})):
        assert await refusal(api, resource, {"metadata": {"name": "nothing"}, "spec": body}, namespace) == ""


async def test_a_person_is_warned_of_a_template_without_a_job(api: ApiServer, namespace: str) -> None:
    for labels, warned in (({}, True), (JOB, False)):
        body = chart_rules.template(claim(exactly("gpu"), labels=labels)) | {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
        }
        command = ("kubectl", "create", f"--namespace={namespace}", "--dry-run=server", "--filename=-")
        done = await asyncio.to_thread(chart_rules.run, *command, given=json.dumps(body))
        assert done.returncode == 0, done.stderr
        assert ("no label timeslice.dev/job" in done.stderr) == warned
