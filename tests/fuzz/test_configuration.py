"""What people write: it is taken, or refused with a ConfigError; never anything else."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st
from spoiling import ANYTHING, DEEP, LIMIT, TEXTS, fuzzed, outcome, spoilt
from timeslice_api.addresses import checked_address
from timeslice_api.errors import ConfigError, InvalidRequest
from timeslice_api.kinds import decode_config
from timeslice_api.kinds.group import decode_group
from timeslice_api.kinds.quantity import bytes_of
from timeslice_api.tokens import token_in
from timeslice_orchestrator.access import tokens_file
from timeslice_orchestrator.discovery import groups_file
from timeslice_orchestrator.listen import Listener

pytestmark = [LIMIT]

CONFIG = {
    "apiVersion": "timeslice.dev/v1alpha1",
    "kind": "TimesliceConfig",
    "job": "job-a",
    "group": "rl-a",
    "backend": "cuda",
}
GROUP = {
    "apiVersion": "timeslice.dev/v1alpha1",
    "kind": "TimesliceGroup",
    "metadata": {"name": "rl-a", "uid": "u", "generation": 1, "finalizers": ["timeslice.dev/claims"]},
    "spec": {
        "seats": 2,
        "jobs": ["a"],
        "namespaces": ["rl"],
        "nodeSelector": {"pool": "x"},
        "hostMemoryPerGPU": "80Gi",
        "lease": {"ttlSeconds": 30, "graceSeconds": 10},
        "policy": "fifo",
    },
    "status": {
        "jobs": ["a"],
        "devices": [{"id": "GPU-1", "node": "n"}],
        "conditions": [{"type": "T", "status": "True", "reason": "R", "message": "", "observedGeneration": 1}],
        "records": {"version": 1},
    },
}
GROUPS = {"groups": {"g": {"jobs": ["job-a"], "devices": {"node-1": ["GPU-1"], "node-2": "all"}}}}
TOKENS = {
    "tokens": [
        {"name": "t", "token_sha256": "0" * 64, "role": "job", "jobs": ["a"], "groups": ["g"]},
        {"name": "n", "token_sha256": "1" * 64, "role": "node", "node": "n1"},
    ]
}
BOMB = "a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ngroups: *c\n"


@fuzzed
@given(spoilt(CONFIG))
def test_opaque_configuration_is_a_config_or_a_config_error(raw: Any) -> None:
    found = outcome(lambda: decode_config(raw), ConfigError)
    assert found.message if isinstance(found, ConfigError) else found.kind == "TimesliceConfig"


@fuzzed
@given(spoilt(GROUP))
def test_a_group_object_is_a_group_or_a_config_error(raw: Any) -> None:
    found = outcome(lambda: decode_group(raw), ConfigError)
    if not isinstance(found, ConfigError):
        assert found.spec.host_memory_bytes is None or found.spec.host_memory_bytes >= 1 << 20


@fuzzed
@given(st.one_of(TEXTS, st.integers(), st.from_regex(r"[+-]?[0-9.]{1,60}([eE][+-]?[0-9]{1,3}|[KMGTPEnumk]i?)?")))
def test_a_quantity_is_a_number_of_bytes_or_a_config_error(text: str | int) -> None:
    found = outcome(lambda: bytes_of(text, "hostMemory"), ConfigError)
    assert isinstance(found, int) or len(found.message) < 200


@pytest.mark.parametrize("module", [groups_file, tokens_file], ids=["groups", "tokens"])
@fuzzed
@example(text=BOMB)
@example(text="groups: &g {a: *g}")
@example(text="? [a]\n: b")
@example(text="groups: {g: {devices: !!python/object/apply:os.system [id]}}")
@example(text="groups:\n" + " " * 2 + "g: " + "{a: " * 500)
@given(text=st.one_of(st.text(max_size=60), DEEP, ANYTHING.map(yaml.safe_dump), spoilt(GROUPS, TOKENS).map(json.dumps)))
def test_a_file_that_people_write_is_taken_or_refused_with_its_name(module: Any, text: str) -> None:
    found = outcome(lambda: module.parsed(text, "the-file.yaml"), ConfigError)
    assert not isinstance(found, ConfigError) or "the-file.yaml" in found.message


@pytest.mark.parametrize("module", [groups_file, tokens_file], ids=["groups", "tokens"])
def test_a_file_of_aliases_is_refused_at_once(module: Any) -> None:
    with pytest.raises(ConfigError, match=r"the-file line 2: an alias is not known here"):
        module.parsed(BOMB, "the-file")


@fuzzed
@given(st.one_of(TEXTS, st.from_regex(r"(unix:|dns:|ipv4:)?[^ ]{0,20}:[0-9]{0,6}(,[^ ]{0,8}:[0-9]{1,5})?")))
def test_an_address_is_one_or_an_invalid_request(text: str) -> None:
    for read in (checked_address, Listener):
        found = outcome(lambda read=read: read(text), InvalidRequest)
        assert not isinstance(found, InvalidRequest) or found.message


@fuzzed
@given(st.lists(st.tuples(TEXTS, st.one_of(TEXTS, st.binary(max_size=20))), max_size=4), st.text())
def test_metadata_has_a_token_or_none(metadata: list[tuple[str, str | bytes]], token: str) -> None:
    assert isinstance(token_in([*metadata, ("authorization", f"Bearer {token}")]), str)
