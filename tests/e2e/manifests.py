"""What users write: a claim template that names group and count, and a pod. Short, as docs/kubernetes.md has it."""

from __future__ import annotations

from pathlib import Path

from kube_cluster.node_files import PAUSE_IMAGE
from reading import Object

JOB_IMAGE = "docker.io/library/timeslice-job:dev"
PROGRAMS = "programs"  # a config map with the programs of tests
_PLACE = "/programs"
MIB = 1 << 20


def group(name: str, *, node: str = "", seats: int = 2, **spec: object) -> Object:
    """A TimesliceGroup; with a node only of that node's GPUs."""
    chosen = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    return {
        "apiVersion": "timeslice.dev/v1alpha1",
        "kind": "TimesliceGroup",
        "metadata": {"name": name},
        "spec": {"seats": seats, **chosen, **spec},
    }


def template(
    name: str,
    *,
    job: str,
    group: str,
    count: int = 1,
    host_memory: str = "64Mi",
    config: Object | None = None,
    kind: str = "ResourceClaimTemplate",
) -> Object:
    """The claims of a job's pods. ``host_memory`` "" leaves it to the device's default, which is all the GPU's memory.

    With ``kind`` ResourceClaim it is a claim that pods share or follow each other in.
    """
    asked = {"capacity": {"requests": {"hostMemory": host_memory}}} if host_memory else {}
    request = {
        "name": "gpu",
        "exactly": {"deviceClassName": f"{group}.timeslice.dev", "count": count, **asked},
    }
    settings = [{"opaque": {"driver": "gpu.timeslice.dev", "parameters": config}}] if config else []
    devices = {"requests": [request], **({"config": settings} if settings else {})}
    labels = {"labels": {"timeslice.dev/job": job}} if job else {}
    common = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
    if kind == "ResourceClaim":
        return {**common, "metadata": {"name": name, **labels}, "spec": {"devices": devices}}
    return {**common, "metadata": {"name": name}, "spec": {"metadata": labels, "spec": {"devices": devices}}}


def pod(name: str, *, claim_template: str = "", claim: str = "", node: str = "", memory: str = "128Mi") -> Object:
    """A pod that only sleeps, with a claim of that template or with that claim; with neither it has no GPU."""
    chosen = {"resourceClaimTemplateName": claim_template} if claim_template else {"resourceClaimName": claim}
    has_claim = bool(claim_template or claim)
    resources: Object = {"requests": {"memory": "16Mi"}, "limits": {"memory": memory}}
    container = {"name": "main", "image": PAUSE_IMAGE, "imagePullPolicy": "Never"}
    spec: Object = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container | {"resources": resources | ({"claims": [{"name": "gpu"}]} if has_claim else {})}],
        **({"resourceClaims": [{"name": "gpu", **chosen}]} if has_claim else {}),
        **({"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}),
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def running(made: Object, *command: str, **environment: str) -> Object:
    """The pod, which runs a command of the job's image instead of sleeping; programs of tests are in /programs."""
    (container,) = made["spec"]["containers"]
    container |= {
        "image": JOB_IMAGE,
        "command": list(command),
        "env": [{"name": name, "value": value} for name, value in environment.items()],
        "volumeMounts": [{"name": PROGRAMS, "mountPath": _PLACE}],
    }
    made["spec"]["volumes"] = [{"name": PROGRAMS, "configMap": {"name": PROGRAMS}}]
    return made


def short_job(
    name: str,
    *,
    group: str,
    job: str = "",
    phases: int = 3,
    phase_s: float = 0.5,
    size: int = 16 * MIB,
    node: str = "",
    count: int = 1,
    memory: str = "256Mi",
) -> list[Object]:
    """Template and pod of a job (default: of the pod's name) that keeps a pattern in the GPU's memory and checks it in
    every phase, taking turns. It prints `begun` and `phase N`, and ends with status 0 when no byte was lost."""
    made = pod(name, claim_template=name, node=node, memory=memory)
    command = ("python3", f"{_PLACE}/gpu_job.py", str(size), str(phases), str(phase_s))
    return [template(name, job=job or name, group=group, count=count), running(made, *command)]


def sleeper(
    name: str, *, group: str, job: str = "", node: str = "", memory: str = "128Mi", **asked: object
) -> list[Object]:
    """Template and pod of a job that only sleeps; ``asked`` goes to the template (count, host_memory, config)."""
    made = pod(name, claim_template=name, node=node, memory=memory)
    return [template(name, job=job or name, group=group, **asked), made]  # type: ignore[arg-type]


def deployment(name: str, made: Object) -> Object:
    """Of one replica of the pod, which has the label `app` with that name."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": made["spec"] | {"restartPolicy": "Always"}},
        },
    }


def programs() -> Object:
    """The config map of programs: gpu_job.py of the client's tests, which short jobs run."""
    here = Path(__file__).resolve().parent
    files = [here.parent / "client/gpu_job.py", *here.glob("program_*.py")]
    data = {path.name: path.read_text() for path in files}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": PROGRAMS}, "data": data}
