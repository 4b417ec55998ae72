"""What a new leader makes of the records that it finds, each group's written by itself.

A write that concerns several groups is not all or none: a leader that died in it leaves some of them as they were
before. Nothing of such a write has left that leader, so neither half has been told to anybody. What can be found:

- A request waits in one group's records; its grant is the same group's write, so both or neither is there.
- A lease has ended, in a group that was not written any more, and in another group, that was, its devices were granted
  to the next job. The core grants no device that is held, so of two leases of different jobs on one device the one with
  the higher token is right, and the other one had ended. Its holder, whose yield was not answered, asks again and is
  told that it holds nothing. The reverse, the end written and the grant not, leaves a request that is granted anew.
- A quarantine without the end of the request that met it, or the reverse: the nodes say with their hellos which parts
  have failed, or the next hand-off meets the same fault, and the same comes of it.
- A node's devices in the group that they left as well as in the one that they came to, or in neither: nothing is
  granted on a node that has not said hello, and the hello says it anew.
- Counters: each group has those of its last write, which are as high as any token or ticket in it. The highest of all
  counts. A token that only a node has told of comes back with its hello.
"""

from __future__ import annotations

from collections.abc import Iterable

from timeslice_orchestrator.core.model import (
    CounterRecord,
    DeviceId,
    LeaseRecord,
    Record,
    RecordKey,
    RequestRecord,
    key_of,
)


def reconciled(found: Iterable[Record]) -> list[Record]:
    """The records to go on with, of all groups together."""
    by_key: dict[RecordKey, Record] = {}
    counters = CounterRecord()
    for record in found:
        if isinstance(record, CounterRecord):
            counters = CounterRecord(max(counters.token, record.token), max(counters.ticket, record.ticket))
        else:
            by_key[key_of(record)] = record
    leases = _leases_in_force([record for record in by_key.values() if isinstance(record, LeaseRecord)])
    granted = {record.lease.request_id for record in leases}
    others = (record for record in by_key.values() if not isinstance(record, LeaseRecord))
    kept = [record for record in others if not (isinstance(record, RequestRecord) and record.request_id in granted)]
    return [*kept, *leases, counters]


def _leases_in_force(leases: list[LeaseRecord]) -> list[LeaseRecord]:
    """Without those on whose devices a later lease of another job is."""
    newest: dict[DeviceId, LeaseRecord] = {}
    for record in sorted(leases, key=lambda record: record.lease.token):
        newest.update(dict.fromkeys(record.lease.devices, record))
    return [
        record
        for record in leases
        if all(newest[device].lease.job_id == record.lease.job_id for device in record.lease.devices)
    ]
