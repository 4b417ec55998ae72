"""What our own programs have written and somebody may have spoilt: it is read, well typed, or it is a ValueError."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from spoiling import ANYTHING, DEEP, LIMIT, TEXTS, fuzzed, spoilt, spoilt_bytes
from stored_records import RECORDS
from timeslice_api.errors import ConfigError
from timeslice_api.shapes import well_typed
from timeslice_driver import journal
from timeslice_driver.dra import records as dra_records
from timeslice_driver.dra.cdi import CdiFolder, assignment_in, vendor_ids_in
from timeslice_driver.dra.vendor_cdi import VendorCdi
from timeslice_orchestrator.kubernetes import records as group_records
from timeslice_orchestrator.store import codec

pytestmark = [LIMIT]

BODIES = [(codec.row_key(record)[0], json.loads(codec.encoded(record))) for record in RECORDS]
STATUS = {
    "version": 1,
    "epoch": 7,
    "token": 12,
    "ticket": 40,
    "draining": True,
    "requests": {"r": {"job": "a", "groups": ["g"], "ticket": 1, "holder": "h"}},
    "leases": {"l": {"request": "r", "job": "a", "groups": ["g"], "devices": "k", "token": 3, "ttl": 30.0}},
    "quarantine": {"b": "why"},
    "deviceSets": {"k": ["d"]},
}
JOURNAL = {
    "boot_id": "b",
    "epoch": 1,
    "token": 2,
    "highest_token": 3,
    "parts": [
        {
            "job_id": "job-a",
            "group_id": "g",
            "device_ids": ["d"],
            "roots": [[1, 2]],
            "held": [
                {"pid": 1, "start_time": 2, "state": "running", "sizes": {"d": 5}, "job_file": "", "spoilt": False}
            ],
            "room": {"d": 9},
        }
    ],
}
CHECKPOINT = {
    "version": 1,
    "bootId": "b",
    "mode": "lanes",
    "incomplete": False,
    "gpus": [{"number": 0, "uuid": "GPU-0", "minor": 0}],
    "claims": {
        "uid": {
            "namespace": "rl",
            "name": "c",
            "state": "completed",
            "job": "a",
            "group": "g",
            "devices": [{"request": "gpu", "pool": "n", "device": "gpu-0-g", "uuid": "GPU-0"}],
            "pods": {"p": "pod"},
            "later": 1,
        }
    },
}
SPEC = {
    "cdiVersion": "0.5.0",
    "kind": "timeslice.dev/claim",
    "devices": [{"name": "x", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}],
    "containerEdits": {"env": ["TIMESLICE_JOB_ID=a", "TIMESLICE_GROUP_ID=g"], "mounts": []},
}
VENDOR = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "GPU-0", "containerEdits": {}}]}


@fuzzed
@given(st.sampled_from(BODIES).flatmap(lambda row: st.tuples(st.just(row[0]), spoilt(row[1]).map(json.dumps))))
def test_a_row_of_the_store_is_a_record_or_a_value_error(row: tuple[str, str]) -> None:
    try:
        record = codec.decoded(*row)
    except ValueError:
        return
    assert codec.decoded(row[0], codec.encoded(record)) == record


@fuzzed
@given(TEXTS, st.one_of(DEEP, ANYTHING.map(json.dumps)))
def test_a_row_of_no_kind_is_a_value_error(kind: str, body: str) -> None:
    try:
        codec.decoded(kind, body)
    except ValueError:
        return
    raise AssertionError("taken")


@fuzzed
@given(spoilt(STATUS).filter(lambda value: isinstance(value, dict)))
def test_the_records_of_a_group_are_records_or_a_value_error(document: dict[str, Any]) -> None:
    assert isinstance(group_records.epoch_of(document), int)
    try:
        found = group_records.decoded("g", document)
    except (ValueError, ConfigError):
        return
    for record in found:
        well_typed(record)


def journalled(body: bytes) -> bytes:
    """With a good checksum, so that what is in it is looked at."""
    header = {
        "format": journal._FORMAT,
        "version": journal.VERSION,
        "sha256": hashlib.sha256(body).hexdigest(),
    }
    return json.dumps(header).encode() + b"\n" + body + b"\n"


GOOD = journalled(json.dumps(JOURNAL).encode())


@fuzzed
@given(
    st.one_of(
        spoilt(JOURNAL).map(json.dumps).map(str.encode).map(journalled),
        DEEP.map(str.encode).map(journalled),
        spoilt_bytes(GOOD),
        DEEP.map(str.encode),
    )
)
def test_a_journal_is_a_record_or_a_value_error(data: bytes) -> None:
    try:
        record = journal.decode(data)
    except ValueError:
        return
    assert journal.decode(journal.encode(record)) == record


@fuzzed
@given(
    st.one_of(
        spoilt(CHECKPOINT).map(json.dumps).map(str.encode),
        spoilt_bytes(json.dumps(CHECKPOINT).encode()),
        DEEP.map(str.encode),
    )
)
def test_a_checkpoint_is_records_or_a_value_error(data: bytes) -> None:
    try:
        found = dra_records.decode(data)
    except ValueError:
        return
    well_typed(found)
    assert dra_records.decode(dra_records.encode(found)).claims == found.claims


@fuzzed
@given(data=st.one_of(spoilt(SPEC).map(json.dumps).map(str.encode), spoilt_bytes(json.dumps(SPEC).encode())))
def test_a_spec_of_ours_gives_what_it_was_made_of_or_nothing(data: bytes, tmp_path_factory: Any) -> None:
    folder = CdiFolder(tmp_path_factory.mktemp("cdi"))
    folder.path("uid").write_bytes(data)
    content = folder.read("uid")
    claim = dra_records.decode(json.dumps(CHECKPOINT).encode()).claims["uid"]
    try:
        job, group = assignment_in(content)
        assert isinstance(job + group, str)
    except LookupError:
        pass
    assert isinstance(vendor_ids_in(content, claim), dict)


def test_merges_in_specs_of_others_stand_for_no_more_than_is_written(tmp_path: Path) -> None:
    levels = [f"l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 9)}], k{n}: 1}}" for n in range(1, 10)]
    good = json.dumps(VENDOR)
    (tmp_path / "bomb.yaml").write_text("\n".join(["kind: nvidia.com/gpu", "l0: &l0 {a: 1}", *levels]))
    (tmp_path / "good.yaml").write_text(good)
    assert VendorCdi([tmp_path]).ids() == {"GPU-0": "nvidia.com/gpu=GPU-0"}


@fuzzed
@given(
    data=st.one_of(
        spoilt(VENDOR).map(json.dumps).map(str.encode),
        spoilt_bytes(json.dumps(VENDOR).encode()),
        DEEP.map(str.encode),
    ),
    suffix=st.sampled_from(["json", "yaml"]),
)
def test_specs_of_others_give_names_and_never_an_error(data: bytes, suffix: str, tmp_path_factory: Any) -> None:
    folder: Path = tmp_path_factory.mktemp("vendor")
    (folder / f"nvidia.{suffix}").write_bytes(data)
    for name, cdi_id in VendorCdi([folder]).ids().items():
        assert cdi_id == f"nvidia.com/gpu={name}"
