# Made from timeslice/_async/region.py by hack/unasync; do not edit.
"""Regions of code that hold accelerators, or lend them out."""

from __future__ import annotations

from types import TracebackType

from timeslice._sync.asking import give_back, resume_after
from timeslice._sync.lease import Lease, acquire
from timeslice.holding import Holding, Sharer, current_owner
from timeslice.session import Session


class Region:
    """Holds its groups while it is entered; may be entered again inside itself, and by several tasks or threads."""

    def __init__(self, session: Session, group_ids: tuple[str, ...], timeout: float | None = None) -> None:
        self._session, self._group_ids, self._timeout = session, group_ids, timeout
        self._entered: list[Lease] = []

    def __enter__(self) -> Lease:
        lease = acquire(self._session, self._group_ids, self._timeout)
        self._entered.append(lease)
        return lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        owner = current_owner()
        own = [lease for lease in self._entered if lease.owner == owner]
        lease = (own or self._entered)[-1]
        self._entered.remove(lease)
        lease.__exit__(kind, error, trace)


class Idle:
    """The inverse of a region: gives the groups back while it is entered, and acquires them again at its end.

    Groups that other threads or tasks of this client hold as well stay as they are. When the block is interrupted
    (Ctrl-C, cancellation, the end of the process) they are not acquired again.
    """

    def __init__(self, session: Session, group_ids: tuple[str, ...] | None, timeout: float | None = None) -> None:
        self._session, self._group_ids, self._timeout = session, group_ids, timeout
        self._aside: list[list[tuple[Holding, list[Sharer]]]] = []

    def __enter__(self) -> None:
        self._session.check_usable()
        aside = self._session.holdings.set_aside(self._group_ids)
        self._aside.append(aside)
        for holding, _ in aside:
            give_back(self._session, holding)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        aside = self._aside.pop()
        if aside and (error is None or isinstance(error, Exception)):
            resume_after(self._session, aside, self._timeout, error=error)
