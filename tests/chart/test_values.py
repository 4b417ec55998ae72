"""Values, their schema, and what the daemons are told by them."""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_files import CHART, ROOT, TEMPLATES, values, values_schema
from timeslice.cli import node, orchestrator


def differences(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Where values and schema do not have the same names, as far as the schema says which there are."""
    if schema.get("additionalProperties") is not False or not isinstance(value, dict):
        return
    known = schema["properties"].keys() - {"global"}
    yield from (f"{path}.{name} has no schema" for name in value.keys() - known)
    yield from (f"{path}.{name} has no value" for name in known - value.keys())
    for name in known & value.keys():
        yield from differences(value[name], schema["properties"][name], f"{path}.{name}")


def test_each_value_has_a_schema_and_each_schema_a_value() -> None:
    assert list(differences(values(), values_schema(), "")) == []


def test_templates_use_only_values_that_exist() -> None:
    text = "\n".join(path.read_text() for path in [*TEMPLATES, *(CHART / "templates").glob("*.t*")])
    used = set(re.findall(r"\.Values\.([A-Za-z.]+)", text))
    used |= {f"node.{name}" for name in re.findall(r"\$node\.([A-Za-z.]+)", text)}
    used |= {f"orchestrator.{name}" for name in re.findall(r"\$orchestrator\.([A-Za-z.]+)", text)}
    assert [path for path in sorted(used) if not _has(values(), path)] == []


def _has(value: Any, path: str) -> bool:
    for name in path.rstrip(".").split("."):
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
    return True


def test_the_chart_installs_the_version_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == project["version"]


def known_env(module: Any, command: str) -> set[str]:
    """The variables that a command reads, by its own help."""
    parser = argparse.ArgumentParser()
    module.add(parser.add_subparsers())
    (commands,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return set(re.findall(r"\[env\s+([A-Z_]+)\]", commands.choices[command].format_help()))


@pytest.mark.parametrize(
    ("template", "module", "command"),
    [("node.yaml", node, "node"), ("orchestrator.yaml", orchestrator, "orchestrator")],
    ids=["node", "orchestrator"],
)
def test_every_variable_that_the_chart_sets_is_one_that_the_daemon_reads(
    template: str, module: Any, command: str
) -> None:
    text = (CHART / "templates" / template).read_text() + (CHART / "templates/_names.tpl").read_text()
    assert set(re.findall(r"name: (TIMESLICE_[A-Z_]+)", text)) - known_env(module, command) == set()


@pytest.mark.parametrize("daemon", ["node", "orchestrator"])
def test_what_the_chart_sets_itself_cannot_be_set_twice(daemon: str) -> None:
    text = (CHART / "templates" / f"{daemon}.yaml").read_text() + (CHART / "templates/_names.tpl").read_text()
    validation = (CHART / "templates/_validation.tpl").read_text()
    (taken,) = re.findall(rf'"where" "{daemon}.extraEnv".*"taken" \(list (.*?)\)', validation)
    assert set(re.findall(r"name: ([A-Z][A-Z_]+)", text)) == set(re.findall(r'"([A-Z_]+)"', taken))


def test_files_that_the_images_are_made_of_exist() -> None:
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert [name for name in allowed if not (ROOT / name).exists()] == []
    for dockerfile in (ROOT / "deployments/images").glob("*.Dockerfile"):
        text = dockerfile.read_text()
        for path in [*re.findall(r"^COPY (?!--from|\. )(\S+)", text, re.M), "deployments/images/pinned.py"]:
            assert any(Path(path).is_relative_to(each) for each in allowed), f"{dockerfile.name} {path}"
