"""The CRD's schema and the decoder of the daemons say the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from chart_files import crd, crd_schema, values_schema
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import Condition, Device, GroupSpec, GroupStatus, LeaseTimes, decode_group, names

SPEC = crd_schema()["properties"]["spec"]["properties"]
STATUS = crd_schema()["properties"]["status"]["properties"]
IN_VALUES = values_schema()["properties"]["groups"]["additionalProperties"]["properties"]


def fields(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


@pytest.mark.parametrize(
    ("schema", "model"),
    [
        (SPEC, GroupSpec),
        (SPEC["lease"]["properties"], LeaseTimes),
        (STATUS, GroupStatus),
        (STATUS["devices"]["items"]["properties"], Device),
        (STATUS["conditions"]["items"]["properties"], Condition),
        (IN_VALUES, GroupSpec),
    ],
    ids=["spec", "lease", "status", "device", "condition", "values"],
)
def test_schema_and_model_have_the_same_fields(schema: dict[str, Any], model: type[BaseModel]) -> None:
    assert schema.keys() == fields(model)


def test_it_is_the_kind_that_the_code_asks_for() -> None:
    spec = crd()["spec"]
    assert crd()["metadata"]["name"] == f"{names.PLURAL_GROUP}.{names.API_GROUP}"
    assert (spec["group"], spec["names"]["plural"], spec["names"]["kind"]) == (
        names.API_GROUP,
        names.PLURAL_GROUP,
        names.KIND_GROUP,
    )
    assert [version["name"] for version in spec["versions"]] == [names.VERSION]
    assert spec["scope"] == "Cluster"


def accepted(value: Any, schema: dict[str, Any]) -> bool:
    """Whether the plain rules of a schema take a value."""
    if isinstance(value, int):
        return bool(schema["minimum"] <= value <= schema["maximum"])
    if isinstance(value, list):
        return len(value) <= schema["maxItems"] and all(accepted(each, schema["items"]) for each in value)
    if "enum" in schema:
        return value in schema["enum"]
    short = schema.get("minLength", 0) <= len(value) <= schema["maxLength"]
    return short and re.search(schema["pattern"], value) is not None


def decodes(**spec: Any) -> bool:
    try:
        decode_group({"metadata": {"name": "rl-a"}, "spec": spec})
    except ConfigError:
        return False
    return True


@given(st.integers(-2, 20))
def test_the_same_numbers_of_seats_are_taken(seats: int) -> None:
    assert accepted(seats, SPEC["seats"]) == accepted(seats, IN_VALUES["seats"]) == decodes(seats=seats)


@given(st.sampled_from(["ttlSeconds", "graceSeconds"]), st.sampled_from([-1, 0, 1, 3600, 3601]))
def test_the_same_lease_times_are_taken(name: str, seconds: int) -> None:
    by_crd = accepted(seconds, SPEC["lease"]["properties"][name])
    by_chart = accepted(seconds, IN_VALUES["lease"]["properties"][name])
    assert by_crd == by_chart == decodes(lease={name: seconds})


@given(st.text(alphabet="aB0-_./é", max_size=5) | st.text(alphabet="a", min_size=62, max_size=65))
@example("")
def test_the_same_job_names_are_taken(job: str) -> None:
    assert accepted([job], SPEC["jobs"]) == accepted([job], IN_VALUES["jobs"] | {"maxItems": 16}) == decodes(jobs=[job])


def test_the_same_number_of_jobs_is_taken() -> None:
    assert SPEC["jobs"]["maxItems"] == IN_VALUES["jobs"]["maxItems"] == names.MAX_JOBS


def test_defaults_are_the_same() -> None:
    by_default = GroupSpec().model_dump(by_alias=True)
    assert {name: schema["default"] for name, schema in SPEC.items() if "default" in schema} == {
        name: by_default[name] for name, schema in SPEC.items() if "default" in schema
    }


def test_a_person_sees_holder_queue_devices_and_duty() -> None:
    columns = crd()["spec"]["versions"][0]["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Holder", "Waiting", "Devices", "Duty", "Age"]
    assert all(
        column["jsonPath"].split(".")[2].partition("[")[0] in (STATUS | SPEC | {"creationTimestamp": {}})
        for column in columns
    )
