"""Regions of both kinds: a coroutine function waits without blocking its loop, whichever client decorates it."""

from __future__ import annotations

from timeslice._async.region import AsyncRegion
from timeslice._sync.region import Region
from timeslice.decorate import Regions
from timeslice.session import Session


def regions_of(session: Session, group_ids: tuple[str, ...], timeout: float | None) -> Regions:
    """Makers of regions that hold these groups."""
    return Regions(
        plain=lambda: Region(session, group_ids, timeout),
        awaiting=lambda: AsyncRegion(session, group_ids, timeout),
    )
