"""Follows the group at the orchestrator, as `timeslice status --watch` does."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import grpc
from timeslice_api.v1alpha1 import orchestrator_pb2, orchestrator_pb2_grpc

from comparison.measures import Handoff

CALL_S = 10.0


@dataclass(frozen=True)
class Reading:
    """The group at one moment (CLOCK_MONOTONIC, seconds)."""

    at: float
    group: orchestrator_pb2.Group


@dataclass
class GroupWatch:
    """Every change of the group from `start` on, heard in a thread of its own."""

    address: str
    group_id: str
    on_change: Callable[[orchestrator_pb2.Group], None]
    on_lost: Callable[[str], None]
    readings: list[Reading] = field(default_factory=list)

    def start(self) -> None:
        """Opens the stream."""
        self._channel = grpc.insecure_channel(self.address)
        self._stub = orchestrator_pb2_grpc.OrchestratorStub(self._channel)
        self._stream = self._stub.WatchGroup(orchestrator_pb2.WatchGroupRequest(group_id=self.group_id))
        self._thread = threading.Thread(target=self._follow, name="group watch", daemon=True)
        self._thread.start()

    def now(self) -> Reading:
        """The group as it is now."""
        group = self._stub.GetGroup(orchestrator_pb2.GetGroupRequest(group_id=self.group_id), timeout=CALL_S)
        return Reading(time.monotonic(), group)

    def stop(self) -> None:
        """Closes the stream."""
        self._stream.cancel()
        self._thread.join(CALL_S)
        self._channel.close()

    def _follow(self) -> None:
        try:
            for group in self._stream:
                self.readings.append(Reading(time.monotonic(), group))
                self.on_change(group)
        except grpc.RpcError as error:
            if error.code() != grpc.StatusCode.CANCELLED:
                self.on_lost(f"{error.code().name}: {error.details()}")


def handoffs(readings: list[Reading]) -> list[Handoff]:
    """What each hand-off took: the difference of the orchestrator's sums before and after it.

    When two ended between two readings, they count as two equal ones.
    """
    found: list[Handoff] = []
    for before, after in pairwise(readings):
        count = after.group.handoffs - before.group.handoffs
        if count > 0:
            found += [_difference(before.group.totals, after.group.totals, count)] * count
    return found


def _difference(before: orchestrator_pb2.GroupTotals, after: orchestrator_pb2.GroupTotals, count: int) -> Handoff:
    def seconds(step: str) -> float:
        return float(getattr(after.seconds, step) - getattr(before.seconds, step)) / count

    return Handoff(
        lock_s=seconds("lock_s"),
        checkpoint_s=seconds("checkpoint_s"),
        restore_s=seconds("restore_s"),
        unlock_s=seconds("unlock_s"),
        whole_s=(after.handoff_s - before.handoff_s) / count,
        bytes_parked=(after.bytes_parked - before.bytes_parked) // count,
        bytes_restored=(after.bytes_restored - before.bytes_restored) // count,
    )
