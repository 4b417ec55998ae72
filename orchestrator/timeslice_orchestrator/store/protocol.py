"""What the orchestrator asks of the place where its records survive the process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Protocol

from timeslice_orchestrator.core.events import AcquireRequested
from timeslice_orchestrator.store.codec import StoredRecord


class Store(Protocol):
    """Records by key (see `codec.row_key`), and the epoch.

    A store on this machine answers a write at once. One that asks somebody else gives a future; until it is done no
    other write is asked for, so writes never overtake each other.
    """

    @property
    def epoch(self) -> int:
        """Goes into every command; higher than that of every leader before."""
        ...

    def write(self, saves: Iterable[StoredRecord], drops: Iterable[StoredRecord] = ()) -> asyncio.Future[None] | None:
        """Saves and drops records; no key may be in both. What is dropped need not be there.

        Returns:
            None when all of it is durable, else a future that is done when it is, within a bounded time.

        Raises:
            StoreFailed: here or by the future. A part may have been written, and the same is written again: a store
                whose writes are not all or none says why each half of one may be found by a successor.
        """
        ...

    def check_room(self, event: AcquireRequested) -> None:
        """Raises QueueFull when there is no room for the request that this event would make."""
        ...

    def raise_epoch(self, above: int) -> asyncio.Future[None] | None:
        """Makes the epoch higher than `above`; when it returns or the future is done, durably.

        Raises:
            StoreFailed: here or by the future; the epoch is as before.
        """
        ...
