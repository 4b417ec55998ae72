# Made from timeslice/_async/lease.py by hack/unasync; do not edit.
"""The handle that `acquire()` returns."""

from __future__ import annotations

from types import TracebackType

from timeslice._sync.asking import begin, end, end_after
from timeslice.holding import Sharer
from timeslice.session import Session


class Lease(Sharer):
    """A granted acquire; as a context manager it yields at the end of the block."""

    def __init__(self, session: Session, group_ids: tuple[str, ...]) -> None:
        super().__init__(group_ids)
        self._session = session

    def yield_(self) -> None:
        """Gives it back; does nothing when that was done before. Errors as in `yield_` of the client."""
        end(self._session, self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        end_after(self._session, self, error)


def acquire(session: Session, group_ids: tuple[str, ...], timeout: float | None) -> Lease:
    """A lease of these groups. Errors as in `acquire` of the client."""
    lease = Lease(session, group_ids)
    begin(session, lease, timeout)
    return lease
