"""Regions of code that hold accelerators, or lend them out."""

from __future__ import annotations

from types import TracebackType

from timeslice._async.asking import give_back, resume_after
from timeslice._async.lease import AsyncLease, acquire
from timeslice.holding import Holding, Sharer, current_owner
from timeslice.session import Session


class AsyncRegion:
    """Holds its groups while it is entered; may be entered again inside itself, and by several tasks or threads."""

    def __init__(self, session: Session, group_ids: tuple[str, ...], timeout: float | None = None) -> None:
        self._session, self._group_ids, self._timeout = session, group_ids, timeout
        self._entered: list[AsyncLease] = []

    async def __aenter__(self) -> AsyncLease:
        lease = await acquire(self._session, self._group_ids, self._timeout)
        self._entered.append(lease)
        return lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        owner = current_owner()
        own = [lease for lease in self._entered if lease.owner == owner]
        lease = (own or self._entered)[-1]
        self._entered.remove(lease)
        await lease.__aexit__(kind, error, trace)


class AsyncIdle:
    """The inverse of a region: gives the groups back while it is entered, and acquires them again at its end.

    Groups that other threads or tasks of this client hold as well stay as they are. When the block is interrupted
    (Ctrl-C, cancellation, the end of the process) they are not acquired again.
    """

    def __init__(self, session: Session, group_ids: tuple[str, ...] | None, timeout: float | None = None) -> None:
        self._session, self._group_ids, self._timeout = session, group_ids, timeout
        self._aside: list[list[tuple[Holding, list[Sharer]]]] = []

    async def __aenter__(self) -> None:
        self._session.check_usable()
        aside = self._session.holdings.set_aside(self._group_ids)
        self._aside.append(aside)
        for holding, _ in aside:
            await give_back(self._session, holding)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        aside = self._aside.pop()
        if aside and (error is None or isinstance(error, Exception)):
            await resume_after(self._session, aside, self._timeout, error=error)
