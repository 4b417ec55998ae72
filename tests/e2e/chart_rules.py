"""Ways to the cluster under test, for tests of the chart's rules: helm, kubectl, and the API server as somebody.

They need only what `hack/cluster env` sets: helm and kubectl on the PATH, and $KUBECONFIG.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import yaml
from dra_kubeletplugin.apiserver import CLAIM_TEMPLATES, CLAIMS, NODES, PODS, SLICES, ApiServer, Resource
from dra_kubeletplugin.apiserver.connection import configuration
from kubernetes.aio.client.api_client import ApiClient
from timeslice_api.kinds import names

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deployments/helm/timeslice"
NAMESPACE = "timeslice"  # where the chart is installed
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
ACCOUNTS = Resource("", "v1", "serviceaccounts")
GROUPS = Resource(names.API_GROUP, names.VERSION, names.PLURAL_GROUP, namespaced=False)

__all__ = ["ACCOUNTS", "CHART", "CLAIMS", "CLAIM_TEMPLATES", "GROUPS", "NAMESPACE", "NODES", "PODS", "SLICES"]


def run(*command: str, given: str = "", limit_s: float = 60) -> subprocess.CompletedProcess[str]:
    """The finished command, whatever its status."""
    return subprocess.run(command, input=given, capture_output=True, text=True, timeout=limit_s, check=False)


def succeeded(*command: str, given: str = "", limit_s: float = 60) -> str:
    """The command's output; an assertion fails when it fails."""
    done = run(*command, given=given, limit_s=limit_s)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def rendered(*options: str, namespace: str = NAMESPACE) -> list[dict[str, Any]]:
    """The chart's objects."""
    versions = ("--kube-version=1.37.2", "--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy")
    text = succeeded("helm", "template", "timeslice", str(CHART), f"--namespace={namespace}", *versions, *options)
    return [document for document in yaml.safe_load_all(text) if document]


def applied(objects: list[dict[str, Any]]) -> None:
    """Applies them as the chart would."""
    text = yaml.safe_dump_all(objects)
    succeeded("kubectl", "apply", "--server-side", "--force-conflicts", "--filename=-", given=text)


def rules() -> Iterator[None]:
    """CRD, policies, accounts and rights are there; the chart's, when it is installed, else for this session alone."""
    succeeded("kubectl", "apply", "--server-side", "--force-conflicts", f"--filename={CHART / 'crds'}")
    if run("helm", "status", "timeslice", f"--namespace={NAMESPACE}").returncode == 0:
        yield
        return
    run("kubectl", "create", "namespace", NAMESPACE)
    names_of = ("policies", "service-accounts", "node-rbac", "orchestrator-rbac")
    objects = rendered(*(f"--show-only=templates/{name}.yaml" for name in names_of))
    for each in objects:
        if each["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
            each["metadata"]["namespace"] = NAMESPACE
    applied(objects)
    yield
    succeeded("kubectl", "delete", "--ignore-not-found", "--filename=-", given=yaml.safe_dump_all(objects))


@asynccontextmanager
async def connected(token: str = "") -> AsyncIterator[ApiServer]:
    """The API server as the administrator, or as whose token it is."""
    settings: Any = await configuration(os.environ["KUBECONFIG"])
    if token:
        settings.cert_file = settings.key_file = None
        settings.api_key = {"BearerToken": f"Bearer {token}"}
    async with ApiServer(ApiClient(settings)) as api:
        yield api


async def token_of(api: ApiServer, account: str, *, node: str = "") -> str:
    """A token of a service account of the chart; with a node one that is bound to a pod there."""
    bound: dict[str, Any] = {}
    if node:
        pod = await pod_of(api, account, node)
        reference = {"kind": "Pod", "apiVersion": "v1", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        bound = {"boundObjectRef": reference}
    body = {"spec": {"expirationSeconds": 3600, **bound}}
    answer = await api.create(ACCOUNTS, body, namespace=NAMESPACE, name=account, subresource="token")
    return str(answer["status"]["token"])


async def pod_of(api: ApiServer, account: str, node: str) -> dict[str, Any]:
    """A pod on the node; it need not run for its token to be good."""
    body = {
        "metadata": {"generateName": "whoever-", "namespace": NAMESPACE},
        "spec": {
            "serviceAccountName": account,
            "nodeName": node,
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "none", "image": "none.invalid/none", "imagePullPolicy": "Never"}],
        },
    }
    return await api.create(PODS, body)


def claim(*requests: dict[str, Any], labels: dict[str, str] | None = None, **devices: Any) -> dict[str, Any]:
    """A claim with a name that nobody has."""
    metadata = {"name": f"claim-{uuid4().hex[:8]}", "labels": {} if labels is None else labels}
    return {"metadata": metadata, "spec": {"devices": {"requests": list(requests), **devices}}}


def template(claim_: dict[str, Any]) -> dict[str, Any]:
    """The template of which such claims are made."""
    return {
        "metadata": {"name": claim_["metadata"]["name"]},
        "spec": {"metadata": {"labels": claim_["metadata"]["labels"]}, "spec": claim_["spec"]},
    }


def exactly(name: str, device_class: str = "rl-a.timeslice.dev", **more: Any) -> dict[str, Any]:
    """A request for devices of one class."""
    return {"name": name, "exactly": {"deviceClassName": device_class, **more}}


def config(**parameters: Any) -> list[dict[str, Any]]:
    """Opaque configuration for the driver."""
    return [{"opaque": {"driver": names.DRIVER, "parameters": parameters}}]
