"""The records of a TimesliceGroup, as its status has them:

    records:
      version: 1                    # of this form
      epoch: 7                      # of the leader that wrote last
      token: 12                     # the highest that were given out when it wrote
      ticket: 40
      draining: true                # or absent
      requests: {<request id>: {job, groups, ticket, holder}}
      leases: {<lease id>: {request, job, groups, devices, token, ttl}}
      quarantine: {<job>: <reason>}
      deviceSets: {<key>: [<device>, ...]}    # named by leases; ranks of a job hold the same ones

A record of several groups is kept by one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final

from timeslice_api.errors import ConfigError
from timeslice_api.shapes import well_typed

from timeslice_orchestrator.core.model import (
    CounterRecord,
    DeviceId,
    DrainRecord,
    GroupId,
    Lease,
    LeaseRecord,
    MemberKey,
    QuarantineRecord,
    Record,
    RequestRecord,
)

VERSION: Final = 1
# An object may have 1.5 MiB in etcd (--max-request-bytes); devices, members, conditions, managedFields need the rest.
MAX_BYTES: Final = 900_000
_LEASE_MORE: Final = 70  # bytes by which a lease is longer than its request, but for its id and without holder

_REQUESTS: Final = "requests"
_LEASES: Final = "leases"
_QUARANTINE: Final = "quarantine"
_SETS: Final = "deviceSets"
SECTIONS: Final = (_REQUESTS, _LEASES, _QUARANTINE, _SETS)

_encode = json.JSONEncoder(separators=(",", ":")).encode


class GroupRecords:
    """The records that one group keeps, and what they take in its object."""

    def __init__(self) -> None:
        self._sections: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
        self._sizes: dict[tuple[str, str], int] = {}
        self._uses: dict[str, int] = {}  # of device sets
        self._draining = False
        self.size = 0  # bytes, about; of a request as much as its lease will need

    def save(self, record: Record) -> None:
        """Keeps a record; it replaces one of the same key. Counters are not kept here."""
        match record:
            case RequestRecord(request_id, job_id, group_ids, ticket, holder):
                fields = {"job": job_id, "groups": list(group_ids), "ticket": ticket, "holder": holder}
                self._put(_REQUESTS, request_id, fields, reserve=_growth(request_id, holder))
            case LeaseRecord(lease):
                self._save_lease(lease)
            case QuarantineRecord(member, reason):
                self._put(_QUARANTINE, member.job_id, reason)
            case DrainRecord():
                self._draining = True

    def drop(self, record: Record) -> None:
        """Forgets a record, if it is there."""
        match record:
            case RequestRecord():
                self._remove(_REQUESTS, record.request_id)
            case LeaseRecord():
                self._drop_lease(record.lease.lease_id)
            case QuarantineRecord():
                self._remove(_QUARANTINE, record.member.job_id)
            case DrainRecord():
                self._draining = False

    def has_room_for(self, request: RequestRecord) -> bool:
        """Whether one request more, and the leases that all waiting ones become, still fit into the object."""
        waiting = self._sections[_REQUESTS]
        if request.request_id in waiting:
            return True
        needed = len(_encode([*vars(request).values()])) + 60 + _growth(request.request_id, request.holder)
        return self.size + needed <= MAX_BYTES

    def document(self, epoch: int, counters: CounterRecord) -> dict[str, Any]:
        """What `status.records` has to be. A copy, whose entries are shared."""
        head: dict[str, Any] = {"version": VERSION, "epoch": epoch, "token": counters.token, "ticket": counters.ticket}
        if self._draining:
            head["draining"] = True
        return head | {section: dict(entries) for section, entries in self._sections.items()}

    def _save_lease(self, lease: Lease) -> None:
        self._drop_lease(lease.lease_id)
        devices = sorted(lease.devices)
        key = blake2b("\0".join(devices).encode(), digest_size=8).hexdigest()
        self._uses[key] = self._uses.get(key, 0) + 1
        if self._uses[key] == 1:
            self._put(_SETS, key, devices)
        fields = {"request": lease.request_id, "job": lease.job_id, "groups": list(lease.group_ids)}
        self._put(_LEASES, lease.lease_id, fields | {"devices": key, "token": lease.token, "ttl": lease.ttl_s})

    def _drop_lease(self, lease_id: str) -> None:
        before = self._sections[_LEASES].get(lease_id)
        if before is None:
            return
        self._remove(_LEASES, lease_id)
        key = before["devices"]
        self._uses[key] -= 1
        if not self._uses[key]:
            del self._uses[key]
            self._remove(_SETS, key)

    def _put(self, section: str, key: str, value: Any, *, reserve: int = 0) -> None:
        self._remove(section, key)
        self._sections[section][key] = value
        size = self._sizes[section, key] = len(_encode({key: value})) + reserve
        self.size += size

    def _remove(self, section: str, key: str) -> None:
        if key in self._sections[section]:
            del self._sections[section][key]
            self.size -= self._sizes.pop((section, key))


def _growth(request_id: str, holder: str) -> int:
    return max(0, len(request_id) + _LEASE_MORE - len(holder))


def groups_of(record: Record) -> tuple[GroupId, ...]:
    """The groups that a record is about, in the order in which they are asked to keep it."""
    match record:
        case RequestRecord():
            return tuple(sorted(record.group_ids))
        case LeaseRecord():
            return tuple(sorted(record.lease.group_ids))
        case DrainRecord():
            return (record.group_id,)
        case QuarantineRecord():
            return (record.member.group_id,)
        case _:
            return ()


def epoch_of(document: Mapping[str, Any]) -> int:
    """Of the leader that wrote last; 0 when none has."""
    epoch = document.get("epoch", 0)
    return epoch if isinstance(epoch, int) else 0


def decoded(group_id: GroupId, document: Mapping[str, Any]) -> list[Record]:
    """The records of a group's `status.records`.

    Raises:
        ConfigError: a newer version of timeslice wrote them.
        ValueError: no version of ours wrote them.
    """
    version = document.get("version", VERSION)
    if isinstance(version, int) and version > VERSION:
        message = f"group {group_id} has records of version {version}; this timeslice knows up to {VERSION}"
        raise ConfigError(message, hint="start the version of timeslice that wrote them, or a newer one")
    try:
        return [well_typed(record) for record in _decoded(group_id, document)]
    except (AttributeError, KeyError, OverflowError, TypeError) as error:
        raise ValueError(f"they lack or misplace {error}") from error


def _decoded(group_id: GroupId, document: Mapping[str, Any]) -> list[Record]:
    found = [*_requests(document), *_leases(document)]
    quarantine = document.get(_QUARANTINE, {}).items()
    found += [QuarantineRecord(MemberKey(str(job), group_id), str(reason)) for job, reason in quarantine]
    if document.get("draining"):
        found.append(DrainRecord(group_id))
    return [*found, CounterRecord(int(document.get("token", 0)), int(document.get("ticket", 0)))]


def _requests(document: Mapping[str, Any]) -> Iterator[Record]:
    for key, of in document.get(_REQUESTS, {}).items():
        yield RequestRecord(key, str(of["job"]), _names(of["groups"]), int(of["ticket"]), str(of.get("holder", "")))


def _leases(document: Mapping[str, Any]) -> Iterator[Record]:
    sets: Mapping[str, list[DeviceId]] = document.get(_SETS, {})
    for key, of in document.get(_LEASES, {}).items():
        yield LeaseRecord(
            Lease(
                lease_id=key,
                request_id=str(of["request"]),
                job_id=str(of["job"]),
                group_ids=_names(of["groups"]),
                devices=frozenset(_names(sets[of["devices"]])),
                token=int(of["token"]),
                ttl_s=float(of["ttl"]),
            )
        )


def _names(values: list[Any]) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is no list")
    return tuple(map(str, values))
