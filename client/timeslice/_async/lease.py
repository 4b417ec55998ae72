"""The handle that `acquire()` returns."""

from __future__ import annotations

from types import TracebackType

from timeslice._async.asking import begin, end, end_after
from timeslice.holding import Sharer
from timeslice.session import Session


class AsyncLease(Sharer):
    """A granted acquire; as a context manager it yields at the end of the block."""

    def __init__(self, session: Session, group_ids: tuple[str, ...]) -> None:
        super().__init__(group_ids)
        self._session = session

    async def yield_(self) -> None:
        """Gives it back; does nothing when that was done before. Errors as in `yield_` of the client."""
        await end(self._session, self)

    async def __aenter__(self) -> AsyncLease:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_after(self._session, self, error)


async def acquire(session: Session, group_ids: tuple[str, ...], timeout: float | None) -> AsyncLease:
    """A lease of these groups. Errors as in `acquire` of the client."""
    lease = AsyncLease(session, group_ids)
    await begin(session, lease, timeout)
    return lease
