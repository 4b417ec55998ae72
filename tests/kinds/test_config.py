"""Opaque configuration: what is wrong is named by its field, with the mend."""

from __future__ import annotations

from typing import Any

import pytest
from timeslice_api.errors import ConfigError
from timeslice_api.kinds import TimesliceConfig, decode_config, encode_config

KIND = {"apiVersion": "timeslice.dev/v1alpha1", "kind": "TimesliceConfig"}


def test_a_configuration_may_say_nothing_but_its_kind() -> None:
    config = decode_config(KIND)
    assert (config.group, config.job, config.backend) == (None, None, None)


def test_what_is_decoded_is_encoded_the_same() -> None:
    raw = {**KIND, "group": "rl-a", "job": "trainer", "backend": "cuda"}
    assert encode_config(decode_config(raw)) == raw


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (KIND | {"grup": "rl-a"}, "grup is not a field of it (did you mean group?)"),
        (KIND | {"slots": 3}, "slots is not a field of it (it has apiVersion, backend, group, job, kind)"),
        (KIND | {"kind": "GpuConfig"}, "kind is 'GpuConfig'"),
        (KIND | {"apiVersion": "timeslice.dev/v2"}, "apiVersion is 'timeslice.dev/v2'"),
        ({"kind": "TimesliceConfig"}, "apiVersion is missing"),
        (KIND | {"job": 3}, "job is 3: input should be a valid string"),
        (KIND | {"job": "team/a"}, "job 'team/a' is not the name of a job"),
        (KIND | {"job": ""}, "job '' is not the name of a job"),
        (KIND | {"group": "slot-3"}, "group 'slot-3' is not the name of a group"),
        (KIND | {"backend": "criu"}, "backend is 'criu': input should be 'cuda'"),
        (KIND | {"job": 3, "group": 4}, "; 1 more"),
        ([], "is list, not an object"),
        (None, "is NoneType, not an object"),
    ],
)
def test_a_wrong_field_is_named(parameters: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_config(parameters, "claim ml/gpu")
    assert str(caught.value).startswith("TimesliceConfig of claim ml/gpu")
    assert message in str(caught.value)


def test_a_configuration_cannot_be_changed_once_it_is_decoded() -> None:
    with pytest.raises(ValueError, match="frozen"):
        decode_config(KIND).job = "other"  # type: ignore[misc]


def test_python_code_may_use_its_own_spelling_of_the_fields() -> None:
    made = TimesliceConfig(api_version="timeslice.dev/v1alpha1", kind="TimesliceConfig", group="rl-a")
    assert encode_config(made) == KIND | {"group": "rl-a"}
