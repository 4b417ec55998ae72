"""What the kernel, the driver and the other side of a call say: read, or told as what it is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from spoiling import LIMIT, TEXTS, fuzzed, outcome, spoilt_bytes
from timeslice_api import handshakes, status
from timeslice_api.errors import InvalidRequest, TimesliceError
from timeslice_api.names import checked_name
from timeslice_api.v1alpha1 import agent_link_pb2, types_pb2
from timeslice_driver import inventory, wire
from timeslice_driver.backends import cuda_command
from timeslice_driver.cgroup import CgroupFs, PodsDisagreeError, parse, pod_uids
from timeslice_driver.dra import device_names
from timeslice_driver.dra.gpus import semantic
from timeslice_driver.processes import ProcFs, parse_stat

pytestmark = [LIMIT]

UID = "12345678-1234-1234-1234-123456789abc"
LINES = (
    f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-1.scope".encode(),
    f"4:memory:/kubepods/burstable/pod{UID}/1\n5:freezer:/x\n0::/../../a".encode(),
)
STAT = b"12 (a (b) c) S 1 12 12 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 9999 1 2"
NUMBERS = st.one_of(TEXTS, st.sampled_from(["max", "0", "123", "18446744073709551616", "inactive_file 5"]))


@fuzzed
@given(text=spoilt_bytes(*LINES).map(lambda raw: raw.decode(errors="replace")), files=st.lists(NUMBERS, min_size=4))
def test_text_about_cgroups_never_leads_out_of_their_folder(text: str, files: list[str], tmp_path_factory: Any) -> None:
    root: Path = tmp_path_factory.mktemp("cgroup")
    (root / "cgroup.controllers").write_text("memory")
    for name, content in zip(("memory.max", "memory.current", "memory.stat", "cgroup.freeze"), files, strict=False):
        (root / name).write_text(content, errors="replace")
    cgroups = CgroupFs(root)
    assert all(Path(room.path).is_relative_to(root) and room.free >= 0 for room in cgroups.head_rooms(text))
    frozen = cgroups.frozen(text)
    assert frozen is None or Path(frozen).is_relative_to(root)
    assert parse(text) is not None
    found = outcome(lambda: pod_uids(text), PodsDisagreeError)
    assert isinstance(found, tuple) or str(found)


@fuzzed
@given(data=spoilt_bytes(STAT))
def test_a_process_is_what_its_line_says_or_none(data: bytes, tmp_path_factory: Any) -> None:
    found = outcome(lambda: parse_stat(data), ValueError)
    assert not isinstance(found, ValueError) or str(found)
    root: Path = tmp_path_factory.mktemp("proc")
    for name in ("stat", "status", "environ", "cgroup"):
        (root / "12").mkdir(exist_ok=True)
        (root / "12" / name).write_bytes(data)
    procfs = ProcFs(root)
    procfs.identity(12)
    assert isinstance(procfs.cgroup(12), str)
    assert isinstance(dict(procfs.environ(12, "A", "B")), dict)


@fuzzed
@given(st.one_of(TEXTS, st.binary(max_size=30)))
def test_what_nvml_and_its_tools_say_is_text_or_a_number(value: str | bytes) -> None:
    text = inventory._text(value)
    assert isinstance(inventory.sysfs_bus_id(text), str)
    assert semantic(text).count(".") == 2
    for name in ("state", "restore_thread", "lock"):
        assert isinstance(cuda_command._value(name, text), int)
    found = device_names.parse(text)
    assert found is None or str(found) == text


@fuzzed
@given(st.text())
def test_a_name_that_is_taken_is_harmless_wherever_it_is_written(value: str) -> None:
    try:
        name = checked_name(value, "job_id")
    except InvalidRequest:
        return
    assert name.isascii()
    assert name.isprintable()
    assert not name.startswith(("/", "-", "."))
    assert ".." not in name


COMMAND = agent_link_pb2.Command(
    command_id=1,
    epoch=2,
    fencing_token=3,
    targets=[
        agent_link_pb2.Target(member=types_pb2.MemberKey(job_id="a", group_id="g"), state=types_pb2.PART_STATE_PARKED)
    ],
    lock_timeout_s=float("inf"),
).SerializeToString()


@fuzzed
@given(spoilt_bytes(COMMAND))
def test_a_command_is_one_with_a_bounded_time_or_a_value_error(data: bytes) -> None:
    found = outcome(lambda: wire.from_command(agent_link_pb2.Command.FromString(data)), ValueError, DecodeError)
    assert isinstance(found, Exception) or 0 <= found.lock_timeout_s <= 3600


class Failed(grpc.RpcError):
    """A failed call."""

    def __init__(self, details: str, trailer: bytes) -> None:
        self._details, self._trailer = details, trailer

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return ((status.TRAILER, self._trailer),)


TRAILERS = [
    types_pb2.ErrorDetail(kind=kind, message="m", hint="h", reason="r").SerializeToString()
    for kind in ("GroupNotFound", "OperationFailed", "AcquireTimeout", "object", "TimesliceError")
]


@fuzzed
@given(st.text(), spoilt_bytes(*TRAILERS))
def test_a_failed_call_is_an_error_of_ours_whatever_it_carries(details: str, trailer: bytes) -> None:
    assert isinstance(status.from_rpc(Failed(details, trailer)), TimesliceError)
    handshakes.meaning_of(details)
