"""The chart's admission policies and the CRD, on the real API server."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import uuid4

import chart_rules
import pytest
from chart_rules import (
    ACCOUNTS,
    CLAIM_TEMPLATES,
    CLAIMS,
    GROUPS,
    NAMESPACES,
    NODES,
    PODS,
    SLICES,
    claim,
    config,
    exactly,
)
from dra_kubeletplugin.apiserver import ApiServer, ApiServerError, ForbiddenError, InvalidError, NotFoundError, Resource
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import capacity_key, decode_config, decode_group
from timeslice_orchestrator.access.caller import Kind
from timeslice_orchestrator.kubernetes.token_reviews import TokenReviews

pytestmark = pytest.mark.timeout(120)

KIND = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig"}
NODE, OTHER_NODE = "timeslice-test-a", "timeslice-test-b"
ROLES = Resource("rbac.authorization.k8s.io", "v1", "roles")
ROLE_BINDINGS = Resource("rbac.authorization.k8s.io", "v1", "rolebindings")
IN_FORCE_S = 30.0  # until a new policy must be in force
UUID = {"distinctAttribute": "gpu.timeslice.dev/uuid"}
SLOT = {"matchAttribute": "gpu.timeslice.dev/slot"}
JOB = {"timeslice.dev/job": "job-a"}


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


async def filled(api: ApiServer, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
    """The claim as it is stored."""
    return await api.create(CLAIMS, body, namespace=namespace)


async def refusal(api: ApiServer, resource: Any, body: dict[str, Any], namespace: str) -> str:
    """What the API server says against it; empty when it takes it (and it is removed again)."""
    try:
        made = await api.create(resource, body, namespace=namespace)
    except (ForbiddenError, InvalidError) as error:
        return str(error)
    await api.delete(resource, made["metadata"]["name"], namespace=namespace)
    return ""


# What is filled in


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


# Who may join


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


async def settled(api: ApiServer, body: dict[str, Any], namespace: str, *, refused: bool) -> str:
    """What is said once the API server has noticed a new group."""
    async with asyncio.timeout(IN_FORCE_S):
        while bool(said := await refusal(api, CLAIMS, body, namespace)) != refused:
            await asyncio.sleep(0.2)
    return said


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


# Configuration


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


# What a node may write


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


# Groups


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
    told = await api.patch(GROUPS, name, body, subresource="status", how="apply", manager="test")
    assert told["status"]["records"] == {"any": {"thing": [1]}}
    shown = await asyncio.to_thread(chart_rules.succeeded, "kubectl", "get", "tsg", name)
    header, line = shown.splitlines()
    assert header.split() == ["NAME", "HOLDER", "WAITING", "DEVICES", "DUTY", "AGE"]
    assert line.split()[:5] == [name, "job-a", "1", "2", "61%"]
