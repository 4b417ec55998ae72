"""What is decided and not durable yet."""

from __future__ import annotations

import asyncio
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
_Changes: TypeAlias = dict[RecordKey, _Change]


class Unwritten:
    """The newest change of each record, until it is written.

    Args:
        store: where to.

    Attributes:
        failure: why the last write failed; None after a good one.
        retry_s: when to try again (seconds), longer after each failure in a row.
        at_once: whether the store's last answer came at once, so that trying again costs little.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._changes: _Changes = {}
        self._under_way: _Changes = {}
        self.failure: StoreFailed | None = None
        self.retry_s = _RETRY_MIN_S
        self.at_once = True

    def __len__(self) -> int:
        return len(self._changes | self._under_way)

    def put(self, change: _Change) -> None:
        """Takes a change; it replaces an earlier one of the same record."""
        self._changes[row_key(change if isinstance(change, NodeRecord) else change.record)] = change

    def write(self) -> asyncio.Future[None] | None:
        """Writes all that was put until now; what is put from now on is for the next write, after this one's end.

        Returns:
            None when it is written, else a future that is done when it is.

        Raises:
            StoreFailed: here or by the future; all of it is still to be written.
        """
        if not self._changes:
            return None
        self._under_way, self._changes = self._changes, {}
        try:
            answer = self._ask()
        except StoreFailed as error:
            self._failed(error)
            raise
        self.at_once = answer is None
        if answer is not None:
            return asyncio.ensure_future(self._follow(answer))
        self._succeeded()
        return None

    def _ask(self) -> asyncio.Future[None] | None:
        changes = self._under_way.values()
        saves = [change.record for change in changes if isinstance(change, Save)]
        nodes = [change for change in changes if isinstance(change, NodeRecord)]
        drops = [change.record for change in changes if isinstance(change, Drop)]
        return self._store.write([*saves, *nodes], drops)

    async def _follow(self, answer: asyncio.Future[None]) -> None:
        try:
            await answer
        except StoreFailed as error:
            self._failed(error)
            raise
        except Exception as error:  # the outermost frame of a write: what has not succeeded has failed
            _log.exception("a write to the store failed by a defect")
            failure = StoreFailed(f"the store failed by a defect: {error!r}")
            self._failed(failure)
            raise failure from error
        self._succeeded()

    def _succeeded(self) -> None:
        self._under_way = {}
        if self.failure is not None:
            _log.warning("the store is written again")
            self.failure, self.retry_s = None, _RETRY_MIN_S

    def _failed(self, error: StoreFailed) -> None:
        self._changes, self._under_way = self._under_way | self._changes, {}
        if self.failure is None:
            _log.error("%s; nothing is granted until that succeeds", error)
        else:
            self.retry_s = min(2 * self.retry_s, _RETRY_MAX_S)
        self.failure = error
