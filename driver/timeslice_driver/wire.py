"""Between the node's own values and the messages of timeslice.v1alpha1."""

from __future__ import annotations

from collections.abc import Iterable

from timeslice_api.v1alpha1 import agent_link_pb2, types_pb2

from timeslice_driver.commands import Answer, Command
from timeslice_driver.faults import Fault
from timeslice_driver.groups import Groups
from timeslice_driver.inventory import Device
from timeslice_driver.parts import Member, Part, PartState

_LONGEST_LOCK_S = 3600.0
_STATES = {
    PartState.EMPTY: types_pb2.PART_STATE_EMPTY,
    PartState.RUNNING: types_pb2.PART_STATE_RUNNING,
    PartState.LOCKED: types_pb2.PART_STATE_LOCKED,
    PartState.PARKED: types_pb2.PART_STATE_PARKED,
    PartState.FAILED: types_pb2.PART_STATE_FAILED,
}
_WANTED: dict[int, PartState | None] = {
    types_pb2.PART_STATE_UNSPECIFIED: None,
    types_pb2.PART_STATE_RUNNING: PartState.RUNNING,
    types_pb2.PART_STATE_LOCKED: PartState.LOCKED,
    types_pb2.PART_STATE_PARKED: PartState.PARKED,
}


def to_member(member: Member) -> types_pb2.MemberKey:
    """As a message."""
    return types_pb2.MemberKey(job_id=member.job_id, group_id=member.group_id)


def to_fault(fault: Fault) -> types_pb2.Fault:
    """As a message."""
    return types_pb2.Fault(reason=fault.reason, message=fault.message, hint=fault.hint, retryable=fault.retryable)


def to_part(part: Part) -> types_pb2.Part:
    """As a message."""
    spent = part.timings
    return types_pb2.Part(
        member=to_member(part.member),
        device_ids=part.device_ids,
        state=_STATES[part.state],
        resident=part.resident,
        fault=to_fault(part.fault) if part.fault else None,
        bytes=part.size,
        processes=len(part.family),
        timings=types_pb2.Timings(
            lock_s=spent.lock_s, checkpoint_s=spent.checkpoint_s, restore_s=spent.restore_s, unlock_s=spent.unlock_s
        ),
    )


def to_device(device: Device) -> types_pb2.Device:
    """As a message."""
    return types_pb2.Device(
        device_id=device.device_id,
        memory_bytes=device.memory_bytes,
        product_name=device.name,
        healthy=not device.fault,
        message=device.fault,
    )


def to_parts(parts: Iterable[Part]) -> list[types_pb2.Part]:
    """As messages."""
    return [to_part(part) for part in parts]


def to_result(answer: Answer) -> agent_link_pb2.Result:
    """As a message."""
    return agent_link_pb2.Result(
        command_id=answer.command.command_id,
        epoch=answer.command.epoch,
        parts=to_parts(answer.parts),
        refused=to_fault(answer.refused) if answer.refused else None,
    )


def to_groups(groups: Groups) -> list[agent_link_pb2.NodeGroup]:
    """As messages."""
    return [agent_link_pb2.NodeGroup(group_id=group_id, device_ids=ids) for group_id, ids in groups.devices.items()]


def from_groups(messages: Iterable[agent_link_pb2.NodeGroup]) -> Groups:
    """The groups in a welcome, or in the news of a change."""
    return Groups({message.group_id: tuple(message.device_ids) for message in messages})


def from_command(message: agent_link_pb2.Command) -> Command:
    """The command in a message.

    Raises:
        ValueError: a target's state is none that a part can be brought to.
    """
    targets = {}
    for target in message.targets:
        if target.state not in _WANTED:
            raise ValueError(f"targets: state {target.state} is none that a part can be brought to")
        targets[Member(target.member.job_id, target.member.group_id)] = _WANTED[target.state]
    lock_timeout_s = min(max(0.0, message.lock_timeout_s), _LONGEST_LOCK_S)
    return Command(message.command_id, message.epoch, message.fencing_token, targets, lock_timeout_s)
