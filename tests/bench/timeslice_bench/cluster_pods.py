"""From an object that a person makes to what comes of it: lanes of a new group, pods that run."""

from __future__ import annotations

import asyncio
import re
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from dra_kubeletplugin.apiserver import CLAIM_TEMPLATES, PODS, SLICES, Object
from kube_cluster.node_files import PAUSE_IMAGE

from timeslice_bench.case import Effort, Measurement, p50, spread
from timeslice_bench.cluster import DRIVER, GROUPS, NODE, Bench, Watched, bench, group_object, lanes, remove

_OPERATION = re.compile(r"^dra_grpc_operations_duration_seconds_(sum|count)\{(.*)\} (\S+)$", re.MULTILINE)


async def measure(effort: Effort, directory: Path, wanted: set[str], profile: Path | None) -> list[Measurement]:
    """`republished_s`, `pod_start_*` and `kubelet_prepare_mean_ms`; `profile` is of no use here."""
    async with bench() as made:
        republished = await _republished(made, effort.new_groups)
        return [republished, *await _pod_starts(made, effort.pods)]


async def _republished(made: Bench, count: int) -> Measurement:
    times = []
    async with made.watched(SLICES, fields=f"spec.driver={DRIVER}") as slices:
        for _ in range(count):
            name = f"bench-{uuid.uuid4().hex[:6]}"
            began = time.monotonic()
            await made.api.create(GROUPS, group_object(name))
            times.append(await slices.until(lambda found: lanes(found, name)) - began)  # noqa: B023  awaited at once
            await remove(made.api, GROUPS, [name])
    return Measurement("republished_s", p50(times), detail=spread([seconds * 1000 for seconds in times]))


async def _pod_starts(made: Bench, count: int) -> list[Measurement]:
    """Pods one after the other, with and without a claim in turns, so that both meet the same state of the machine."""
    async with (
        made.group(jobs=["known"]) as known,
        made.group() as new,
        made.watched(PODS, namespace=made.namespace) as pods,
    ):
        starts = PodStarts(made, pods)
        await starts.template("known", group=known, job="known")
        times: dict[str, list[float]] = {kind: [] for kind in ("plain", "claim", "new job")}
        before = await _kubelet_figures(made)
        for number in range(count + 1):
            times["plain"].append(await starts.one(""))
            times["claim"].append(await starts.one("known"))
            await starts.template(f"new-{number}", group=new, job=f"new-{number}")
            times["new job"].append(await starts.one(f"new-{number}"))
        after = await _kubelet_figures(made)
    plain, claim, new_job = (times[kind][1:] for kind in ("plain", "claim", "new job"))
    return [
        _ratio("pod_start_ratio", claim, plain),
        _ratio("pod_start_new_job_ratio", new_job, plain),
        _mean("kubelet_prepare_mean_ms", before, after, "NodePrepareResources"),
        _mean("kubelet_unprepare_mean_ms", before, after, "NodeUnprepareResources"),
    ]


class PodStarts:
    """Starts pods and takes the time until the API server shows that they run."""

    def __init__(self, made: Bench, pods: Watched) -> None:
        self._made = made
        self._pods = pods

    async def template(self, name: str, *, group: str, job: str) -> None:
        """A claim template for a GPU of the group."""
        exactly = {"deviceClassName": f"{group}.timeslice.dev", "capacity": {"requests": {"hostMemory": "64Mi"}}}
        body = {
            "metadata": {"name": name, "namespace": self._made.namespace},
            "spec": {
                "metadata": {"labels": {"timeslice.dev/job": job}},
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}},
            },
        }
        await self._made.api.create(CLAIM_TEMPLATES, body)

    async def one(self, template: str) -> float:
        """Seconds from the pod's creation until it runs. It is gone on return."""
        name = f"pod-{uuid.uuid4().hex[:6]}"
        began = time.monotonic()
        await self._made.api.create(PODS, _pod(name, self._made.namespace, template))
        ran = await self._pods.until(lambda found: _phase(found, name) == "Running")
        await remove(self._made.api, PODS, [name], namespace=self._made.namespace)
        return ran - began


def _pod(name: str, namespace: str, template: str) -> Object:
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}] if template else []
    container = {
        "name": "main",
        "image": PAUSE_IMAGE,
        "imagePullPolicy": "Never",
        "resources": {"limits": {"memory": "128Mi"}, "claims": [{"name": claim["name"]} for claim in claims]},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
        "resourceClaims": claims,
    }
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def _phase(pods: Collection[Object], name: str) -> str:
    return next((str(pod["status"].get("phase")) for pod in pods if pod["metadata"]["name"] == name), "")


def _ratio(case: str, times: Sequence[float], plain: Sequence[float]) -> Measurement:
    detail = f"{p50(times):.2f} s against {p50(plain):.2f} s without a claim, medians of {len(times)}"
    return Measurement(case, p50(times) / p50(plain), detail=detail)


@dataclass(frozen=True)
class Operations:
    """What the kubelet counts of one method of the plugin."""

    seconds: float = 0.0
    count: float = 0.0


async def _kubelet_figures(made: Bench) -> dict[str, Operations]:
    """By method of the plugin's interface; failed calls count as well."""
    text = await asyncio.to_thread(made.cluster.api.get, f"/api/v1/nodes/{NODE}/proxy/metrics")
    found: dict[str, dict[str, float]] = {}
    for kind, labels, value in _OPERATION.findall(text):
        if f'driver_name="{DRIVER}"' in labels:
            method = re.search(r'method_name="[^"]*?(\w+)"', labels)
            figures = found.setdefault(method[1] if method else "", {"sum": 0.0, "count": 0.0})
            figures[kind] += float(value)
    return {method: Operations(figures["sum"], figures["count"]) for method, figures in found.items()}


def _mean(case: str, before: dict[str, Operations], after: dict[str, Operations], method: str) -> Measurement:
    old, new = before.get(method, Operations()), after[method]
    count = new.count - old.count
    mean_ms = (new.seconds - old.seconds) / count * 1000
    return Measurement(case, mean_ms, detail=f"{count:.0f} calls of the kubelet for pods that started one by one")
