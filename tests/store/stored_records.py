"""A record of each kind that the store keeps."""

from __future__ import annotations

from timeslice_orchestrator.core.model import (
    CounterRecord,
    DrainRecord,
    Lease,
    LeaseRecord,
    MemberKey,
    QuarantineRecord,
    RequestRecord,
)
from timeslice_orchestrator.store import NodeRecord, StoredRecord

LEASE = LeaseRecord(Lease("l1", "r1", "job-a", ("g1", "g2"), frozenset({"GPU-0", "GPU-1"}), token=7, ttl_s=30.0))
RECORDS: list[StoredRecord] = [
    RequestRecord("r2", "job-b", ("g1",), ticket=3, holder="host:12 rank 0"),
    LEASE,
    DrainRecord("g1"),
    QuarantineRecord(MemberKey("job-c", "g1"), "restore failed: CUDA_ERROR_UNKNOWN"),
    CounterRecord(token=7, ticket=3),
    NodeRecord("node-1", ("GPU-0", "GPU-1"), (("g1", ("GPU-0",)), ("g2", ("GPU-1",)))),
]
