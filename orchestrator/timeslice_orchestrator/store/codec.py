"""Records as rows: (kind, key, version, body), the body in JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from timeslice_api.shapes import json_of, well_typed

from timeslice_orchestrator.core.model import (
    CounterRecord,
    DeviceId,
    DrainRecord,
    GroupId,
    Lease,
    LeaseRecord,
    MemberKey,
    NodeName,
    QuarantineRecord,
    Record,
    RecordKey,
    RequestRecord,
    key_of,
)

VERSION = 1  # of every body below; a row with a higher one was written by a newer timeslice


@dataclass(frozen=True)
class NodeRecord:
    """What a node said of itself in its last hello: its devices, and the groups that it declares.

    Kept, so that after a restart the groups are known before their nodes have dialled in again.
    """

    node: NodeName
    devices: tuple[DeviceId, ...]
    groups: tuple[tuple[GroupId, tuple[DeviceId, ...]], ...] = ()


StoredRecord: TypeAlias = Record | NodeRecord

_encode = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps makes an encoder a call


def row_key(record: StoredRecord) -> RecordKey:
    """Under which a record is stored; a later one with the same key replaces it."""
    return ("node", record.node) if isinstance(record, NodeRecord) else key_of(record)


def encoded(record: StoredRecord) -> str:
    """The body of a record's row."""
    return _encode(_fields(record))


def _fields(record: StoredRecord) -> dict[str, Any]:
    match record:
        case LeaseRecord(lease):
            return {**vars(lease), "devices": sorted(lease.devices)}
        case QuarantineRecord(member, reason):
            return {"job_id": member.job_id, "group_id": member.group_id, "reason": reason}
        case _:
            return vars(record)


def decoded(kind: str, body: str) -> StoredRecord:
    """The record of a row.

    Raises:
        ValueError: the row is not one that `encoded` made.
    """
    try:
        return well_typed(_DECODERS[kind](json_of(body)))
    except (KeyError, TypeError) as error:
        raise ValueError(f"a record of kind {kind!r} lacks or misplaces {error}") from error


def _request(fields: dict[str, Any]) -> StoredRecord:
    return RequestRecord(**{**fields, "group_ids": tuple(fields["group_ids"])})


def _lease(fields: dict[str, Any]) -> StoredRecord:
    frozen = {"group_ids": tuple(fields["group_ids"]), "devices": frozenset(fields["devices"])}
    return LeaseRecord(Lease(**{**fields, **frozen}))


def _quarantine(fields: dict[str, Any]) -> StoredRecord:
    return QuarantineRecord(MemberKey(fields["job_id"], fields["group_id"]), fields["reason"])


def _node(fields: dict[str, Any]) -> StoredRecord:
    groups = tuple((group_id, tuple(devices)) for group_id, devices in fields["groups"])
    return NodeRecord(fields["node"], tuple(fields["devices"]), groups)


_DECODERS: dict[str, Callable[[dict[str, Any]], StoredRecord]] = {
    "request": _request,
    "lease": _lease,
    "drain": lambda fields: DrainRecord(**fields),
    "quarantine": _quarantine,
    "counter": lambda fields: CounterRecord(**fields),
    "node": _node,
}
