"""What nodes say: each message is checked, and an error names the field. A node that sends nonsense is refused whole,
since what it says is taken for the truth about its devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from timeslice_api.errors import InvalidRequest
from timeslice_api.names import checked_name, checked_process, node_of, printable
from timeslice_api.v1alpha1 import agent_link_pb2, types_pb2

from timeslice_orchestrator.core.events import CommandDone, PartsReported
from timeslice_orchestrator.core.model import DeviceId, Fault, MemberKey, NodeName, PartReport, Timings
from timeslice_orchestrator.rpc.answers import PART_STATES
from timeslice_orchestrator.store import NodeRecord

_STATES = {number: state for state, number in PART_STATES.items()}
_MAX_DEVICE_ID = 253
_MAX_MEMBERS = 10_000
_MOST_DEVICES = 1024  # of a node, and groups that it declares
_MOST_BYTES = 1 << 50
_LONGEST_S = 1e9
_LONGEST_TEXT = 2000  # characters of a fault, which goes into answers, events and the objects of groups
_members: dict[tuple[str, str], MemberKey] = {}  # checked before: the same few come in every result


@dataclass(frozen=True)
class Hello:
    """A checked hello: the node with its devices and groups, its parts, and the newest epoch and token it ever saw."""

    record: NodeRecord
    parts: tuple[PartReport, ...]
    highest_epoch: int
    highest_token: int


def hello(message: agent_link_pb2.Hello) -> Hello:
    """The first message of a node. Raises InvalidRequest."""
    node = checked_name(message.node, "hello.node")
    devices = _device_ids([device.device_id for device in message.devices], "hello.devices")
    declared = _groups(message.groups, "hello.groups", frozenset(devices))
    parts = _parts(message.parts, "hello.parts", frozenset(devices))
    return Hello(NodeRecord(node, devices, declared), parts, message.highest_epoch, message.highest_token)


def groups(message: agent_link_pb2.NodeGroups, record: NodeRecord) -> NodeRecord:
    """The node with the groups that it declares now, of the devices of its hello. Raises InvalidRequest."""
    return replace(record, groups=_groups(message.groups, "groups", frozenset(record.devices)))


def report(message: agent_link_pb2.Report, node: NodeName, known: frozenset[DeviceId]) -> PartsReported:
    """Parts that changed by themselves, on the devices that its hello made known. Raises InvalidRequest."""
    ended = tuple(_member(key, f"report.ended[{index}]") for index, key in enumerate(message.ended))
    processes = tuple(
        _process(name, node, f"report.ended_processes[{index}]") for index, name in enumerate(message.ended_processes)
    )
    return PartsReported(node, _parts(message.parts, "report.parts", known), ended, processes)


def _process(name: str, node: NodeName, field: str) -> str:
    """A node speaks for its own processes only."""
    if node_of(checked_process(name, field)) != node:
        raise InvalidRequest(f"{field} {name!r} is no process of node {node}")
    return name


def result(message: agent_link_pb2.Result, node: NodeName, known: frozenset[DeviceId]) -> CommandDone:
    """The outcome of a command, on the devices that its hello made known. Raises InvalidRequest."""
    refused = _fault(message.refused) if message.HasField("refused") else None
    return CommandDone(node, message.command_id, _parts(message.parts, "result.parts", known), refused)


def _device_ids(values: Sequence[str], field: str) -> tuple[DeviceId, ...]:
    _check_count(values, field)
    found: dict[DeviceId, None] = {}
    for index, value in enumerate(values):
        if not value or len(value) > _MAX_DEVICE_ID or not value.isprintable():
            raise InvalidRequest(f"{field}[{index}] {value[:_MAX_DEVICE_ID]!r} is not a device id")
        if value in found:
            raise InvalidRequest(f"{field}[{index}] {value!r} is named twice")
        found[value] = None
    return tuple(found)


def _groups(
    messages: Sequence[agent_link_pb2.NodeGroup], field: str, known: frozenset[DeviceId]
) -> tuple[tuple[str, tuple[DeviceId, ...]], ...]:
    _check_count(messages, field)
    found: dict[str, tuple[DeviceId, ...]] = {}
    owner: dict[DeviceId, str] = {}
    for index, message in enumerate(messages):
        place = f"{field}[{index}]"
        group_id = checked_name(message.group_id, f"{place}.group_id")
        if group_id in found:
            raise InvalidRequest(f"{place}.group_id {group_id!r} is named twice", group_id=group_id)
        found[group_id] = _known_devices(message.device_ids, f"{place}.device_ids", known)
        for device in found[group_id]:
            if device in owner:
                message_ = f"{place}.device_ids: {device} is in group {owner[device]} already"
                raise InvalidRequest(message_, group_id=group_id)
            owner[device] = group_id
    return tuple(found.items())


def _check_count(values: Sequence[object], field: str) -> None:
    if len(values) > _MOST_DEVICES:
        raise InvalidRequest(f"{field} has {len(values)} entries; {_MOST_DEVICES} are allowed")


def _known_devices(values: Sequence[str], field: str, known: frozenset[DeviceId]) -> tuple[DeviceId, ...]:
    devices = _device_ids(values, field)
    for index, device in enumerate(devices):
        if device not in known:
            raise InvalidRequest(f"{field}[{index}] {device!r} is not among the node's devices")
    return devices


def _parts(messages: Sequence[types_pb2.Part], field: str, known: frozenset[DeviceId]) -> tuple[PartReport, ...]:
    parts = tuple(_part(message, f"{field}[{index}]", known) for index, message in enumerate(messages))
    if len({part.member for part in parts}) < len(parts):
        raise InvalidRequest(f"{field} names a member twice")
    return parts


def _part(message: types_pb2.Part, field: str, known: frozenset[DeviceId]) -> PartReport:
    state = _STATES.get(message.state)
    if state is None:
        raise InvalidRequest(f"{field}.state {message.state} is not a state of a part")
    return PartReport(
        member=_member(message.member, f"{field}.member"),
        devices=_devices(message.device_ids, f"{field}.device_ids", known),
        state=state,
        resident=message.resident,
        fault=_fault(message.fault) if message.HasField("fault") else None,
        bytes_=_bytes(message.bytes, f"{field}.bytes"),
        processes=message.processes,
        timings=_timings(message.timings, f"{field}.timings") if message.HasField("timings") else Timings(),
    )


def _devices(values: Sequence[str], field: str, known: frozenset[DeviceId]) -> frozenset[DeviceId]:
    devices = frozenset(values)
    if len(devices) == len(values) and devices <= known:
        return devices
    return frozenset(_known_devices(values, field, known))  # the way that names what is wrong


def _member(message: types_pb2.MemberKey, field: str) -> MemberKey:
    key = message.job_id, message.group_id
    if key not in _members:
        if len(_members) >= _MAX_MEMBERS:
            _members.clear()
        job_id = checked_name(message.job_id, f"{field}.job_id")
        _members[key] = MemberKey(job_id, checked_name(message.group_id, f"{field}.group_id"))
    return _members[key]


def _fault(message: types_pb2.Fault) -> Fault:
    texts = (message.reason, message.message, message.hint)
    reason, text, hint = (printable(each[:_LONGEST_TEXT]) for each in texts)
    return Fault(reason, text, hint, message.retryable)


def _bytes(value: int, field: str) -> int:
    """Others are told sums of them, in 64 bits."""
    if value > _MOST_BYTES:
        raise InvalidRequest(f"{field} {value} is more than any node has")
    return value


def _timings(message: types_pb2.Timings, field: str) -> Timings:
    """Others are told sums of them, which one that is no number would spoil for ever."""
    seconds = message.lock_s, message.checkpoint_s, message.restore_s, message.unlock_s
    if not all(0 <= each <= _LONGEST_S for each in seconds):
        raise InvalidRequest(f"{field} has {seconds} s, of which one is none")
    return Timings(*seconds)
