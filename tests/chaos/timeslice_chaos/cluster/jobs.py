"""The jobs of a cluster's world, as their people would write them: a Deployment and a claim template for each place."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import manifests
from reading import Object

PLACES = {"a-0": "node-a", "a-1": "node-b", "b-0": "node-a", "b-1": "node-b", "c": "node-b"}
"""Processes of jobs and their nodes: two jobs span both nodes, one is on one."""
SEATS = 3
HOST_FOLDER = PurePosixPath("/var/lib/timeslice-chaos")  # of a node: logs, and the office that tells pids
OFFICE = "office.sock"
_GPUS = 4  # of a node: a job claims all of them, so that it shares those that it uses
_BYTES, _HELD_S = 6 << 20, 0.3
_END_S = 10  # a job that is told to end finishes its turn
_PACKAGE = "timeslice-chaos"
_MODULES = ("__init__.py", "job.py", "log.py", "pod.py")


def job_of(place: str) -> str:
    """The job that a place belongs to."""
    return place.partition("-")[0]


def program() -> Object:
    """The config map with what runs in the pods."""
    folder = Path(__file__).resolve().parents[1]
    data = {name: (folder / name).read_text() for name in _MODULES}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _PACKAGE}, "data": data}


def manifests_of(place: str, group: str) -> list[Object]:
    """Template and Deployment; the pod that it makes in place of one that is gone has a claim of its own."""
    job = job_of(place)
    made = manifests.pod(place, claim_template=place, node=PLACES[place], memory="256Mi")
    made["spec"]["terminationGracePeriodSeconds"] = _END_S
    command = ["python3", "-m", "timeslice_chaos.pod", f"/chaos/{place}", f"/chaos/{OFFICE}", job, str(_BYTES)]
    (container,) = made["spec"]["containers"]
    container |= {
        "image": manifests.JOB_IMAGE,
        "command": [*command, str(_HELD_S)],
        "env": [{"name": "PYTHONPATH", "value": "/program"}],
        "volumeMounts": [
            {"name": "program", "mountPath": "/program/timeslice_chaos"},
            {"name": "chaos", "mountPath": "/chaos"},
        ],
    }
    made["spec"]["volumes"] = [
        {"name": "program", "configMap": {"name": _PACKAGE}},
        {"name": "chaos", "hostPath": {"path": str(HOST_FOLDER), "type": "Directory"}},
    ]
    template = manifests.template(place, job=job, group=group, count=_GPUS)
    return [template, manifests.deployment(place, made)]
