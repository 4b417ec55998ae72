"""What pods need that are ranks of one job: a name for rank 0, and the key by which they know each other."""

from __future__ import annotations

from pathlib import Path

from chart_rules import succeeded
from reading import Object

_SECRET = "ranks"
_FILE = "ranks.pem"
_PLACE = "/etc/ranks"
_PORT = 7000


def service(name: str) -> Object:
    """By which the pod is found whose label `rank` is that name."""
    spec = {"clusterIP": "None", "selector": {"rank": name}, "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def key_of_ranks(folder: Path) -> Object:
    """The Secret of the key; made as docs/security.md says."""
    path = str(folder / _FILE)
    key = ("-newkey", "rsa:3072", "-nodes", "-days", "2", "-keyout", path, "-out", path)
    succeeded("openssl", "req", "-x509", *key, "-subj", "/CN=ranks of wide")
    content = {_FILE: Path(path).read_text()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET}, "stringData": content}


def as_rank(made: Object, number: int, of: int, *, head: str = "") -> Object:
    """The pod as rank ``number`` of ``of``; ``head`` is the service of rank 0, where there are several."""
    (container,) = made["spec"]["containers"]
    variables = {"RANK": str(number), "WORLD_SIZE": str(of)}
    made["metadata"]["labels"] = {"rank": made["metadata"]["name"]}
    if of > 1:
        place = f"{head if number else '0.0.0.0'}:{_PORT}"
        variables |= {"TIMESLICE_RANKS_ADDRESS": place, "TIMESLICE_RANKS_KEY": f"{_PLACE}/{_FILE}"}
        made["spec"].setdefault("volumes", []).append({"name": _SECRET, "secret": {"secretName": _SECRET}})
        container.setdefault("volumeMounts", []).append({"name": _SECRET, "mountPath": _PLACE})
    container.setdefault("env", []).extend({"name": key, "value": value} for key, value in variables.items())
    return made
