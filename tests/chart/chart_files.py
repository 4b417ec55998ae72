"""The chart's files, as they are in the repository."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "deployments/helm/timeslice"
POLICIES = sorted((CHART / "policies").glob("*.yaml"))
TEMPLATES = sorted((CHART / "templates").glob("*.yaml"))
EXAMPLES = sorted((ROOT / "examples/kubernetes").glob("*.yaml"))


@cache
def documents(path: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def crd() -> dict[str, Any]:
    (found,) = documents(CHART / "crds/timeslicegroups.yaml")
    return found


def crd_schema() -> dict[str, Any]:
    schema: dict[str, Any] = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


@cache
def values() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@cache
def values_schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found
