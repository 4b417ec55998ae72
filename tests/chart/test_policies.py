"""The admission policies, as far as they can be judged without an API server: what they do is tested in e2e."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from chart_files import CHART, POLICIES, documents
from timeslice_api.kinds import TimesliceConfig, names
from timeslice_api.tokens import AUDIENCE

ALL = [(path.name, document) for path in POLICIES for document in documents(path)]
BY_NAME = {document["metadata"]["name"]: document for _, document in ALL if document["kind"].endswith("Policy")}


def of_kind(ending: str) -> list[dict[str, Any]]:
    return [document for _, document in ALL if document["kind"].endswith(ending)]


@pytest.mark.parametrize("path", POLICIES, ids=lambda path: path.stem)
def test_a_file_of_policies_is_installed_by_the_chart(path: Path) -> None:
    assert f'"{path.stem}"' in (CHART / "templates/policies.yaml").read_text()


def test_every_policy_has_a_binding_without_which_it_does_nothing() -> None:
    assert {binding["spec"]["policyName"] for binding in of_kind("Binding")} == BY_NAME.keys()


def test_a_policy_that_refuses_does_so_when_it_fails_too() -> None:
    denying = {
        binding["spec"]["policyName"]
        for binding in of_kind("Binding")
        if "Deny" in binding["spec"].get("validationActions", ["Deny"])
    }
    assert {BY_NAME[name]["spec"]["failurePolicy"] for name in denying} == {"Fail"}


def test_policies_for_nodes_are_for_the_account_of_the_node_alone() -> None:
    for name in ("timeslice-node-slices", "timeslice-node-claims", "timeslice-node-tokens"):
        (condition,) = BY_NAME[name]["spec"]["matchConditions"]
        assert condition["expression"] == "request.userInfo.username == '__NODE_ACCOUNT__'"


def test_an_admitted_field_of_the_configuration_is_one_that_the_driver_knows() -> None:
    text = str(BY_NAME["timeslice-claims-configured"])
    (listed,) = re.findall(r"k in \[(.*?)\]", text)
    known = {field.alias for field in TimesliceConfig.model_fields.values()}
    assert set(re.findall(r"'(\w+)'", listed.replace("\\'", "'"))) == known
    assert f"it has {', '.join(sorted(map(str, known)))}" in text


def test_policies_spell_names_as_the_code_does() -> None:
    text = "\n".join(path.read_text() for path in POLICIES)
    assert set(re.findall(r"timeslice\.dev/[a-z]+\b(?!1)", text)) == {
        names.LABEL_JOB,
        names.LABEL_GROUP,
        f"{names.DRIVER.removeprefix('gpu.')}/{names.ATTRIBUTE_UUID}",
        f"{names.DRIVER.removeprefix('gpu.')}/{names.ATTRIBUTE_SLOT}",
    }
    assert set(re.findall(r"'(gpu\.[a-z.]+)'", text)) == {names.DRIVER}
    assert f"'{names.CLASS_SUFFIX}'" in text
    assert f"size() - {len(names.CLASS_SUFFIX)})" in text


def test_tokens_are_for_the_audience_that_the_orchestrator_asks_for() -> None:
    assert f"== '{AUDIENCE}'" in str(BY_NAME["timeslice-node-tokens"]["spec"]["validations"])
    assert f"serviceAccountToken: {{audience: {AUDIENCE}," in (CHART / "templates/node.yaml").read_text()
