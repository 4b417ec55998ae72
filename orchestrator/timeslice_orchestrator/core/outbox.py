"""The effects of one step, gathered: records first, one write per key, one change notice per group."""

from __future__ import annotations

from timeslice_orchestrator.core.effects import Drop, Effect, GroupChanged, Save
from timeslice_orchestrator.core.model import GroupId, Record, RecordKey, key_of


class Outbox:
    """Collects what a step wants done."""

    def __init__(self) -> None:
        self._records: dict[RecordKey, Save | Drop] = {}
        self._effects: list[Effect] = []
        self._touched: dict[GroupId, None] = {}

    def save(self, record: Record) -> None:
        """Has a record written."""
        self._records[key_of(record)] = Save(record)

    def drop(self, record: Record) -> None:
        """Has a record removed. The last word on a key counts: an earlier step may have saved it too."""
        self._records[key_of(record)] = Drop(record)

    def add(self, effect: Effect) -> None:
        """Has anything else done, in the order of the calls."""
        self._effects.append(effect)

    def touch(self, group_id: GroupId) -> None:
        """Notes that people see the group differently now."""
        self._touched[group_id] = None

    def take(self) -> list[Effect]:
        """Everything gathered since the last call."""
        effects = [*self._records.values(), *self._effects, *map(GroupChanged, self._touched)]
        self._records.clear()
        self._effects.clear()
        self._touched.clear()
        return effects
