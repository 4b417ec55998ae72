"""What is decided and not on disk yet."""

from __future__ import annotations

import logging
from typing import TypeAlias

from timeslice_api.errors import StoreFailed

from timeslice_orchestrator.core.effects import Drop, Save
from timeslice_orchestrator.core.model import RecordKey
from timeslice_orchestrator.store import NodeRecord, Store
from timeslice_orchestrator.store.codec import row_key

_log = logging.getLogger(__name__)

_RETRY_MIN_S = 0.1  # of a failed write; doubled each time
_RETRY_MAX_S = 2.0

_Change: TypeAlias = Save | Drop | NodeRecord


class Unwritten:
    """The newest change of each record, until it is written.

    Args:
        store: where to.

    Attributes:
        failure: why the last write failed; None after a good one.
        retry_s: when to try again (seconds), longer after each failure in a row.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes: dict[RecordKey, _Change] = {}
        self.failure: StoreFailed | None = None
        self.retry_s = _RETRY_MIN_S

    def __len__(self) -> int:
        return len(self._changes)

    def put(self, change: _Change) -> None:
        """Takes a change; it replaces an earlier one of the same record."""
        self._changes[row_key(change if isinstance(change, NodeRecord) else change.record)] = change

    def write(self) -> None:
        """Writes all of it in one transaction.

        Raises:
            StoreFailed: all of it is still to be written.
        """
        try:
            if self._changes:
                self._write()
        except StoreFailed as error:
            if self.failure is None:
                _log.error("%s; nothing is granted until that succeeds", error)
            else:
                self.retry_s = min(2 * self.retry_s, _RETRY_MAX_S)
            self.failure = error
            raise
        if self.failure is not None:
            _log.warning("the store is written again")
            self.failure, self.retry_s = None, _RETRY_MIN_S

    def _write(self) -> None:
        changes = self._changes.values()
        saves = [change.record for change in changes if isinstance(change, Save)]
        nodes = [change for change in changes if isinstance(change, NodeRecord)]
        drops = [change.record for change in changes if isinstance(change, Drop)]
        self._store.write([*saves, *nodes], drops)
        self._changes.clear()
