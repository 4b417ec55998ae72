"""What a client holds: leases, and the callers that share them."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterable
from typing import TypeAlias

from timeslice_api.errors import LeaseLost

from timeslice.acquisition import Grant

Owner: TypeAlias = tuple[int, int]


def current_owner() -> Owner:
    """Who is calling: the thread and, in an event loop, the task."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), id(task) if task else 0


class Holding:
    """One lease of the orchestrator's, shared by all callers that hold its groups: nested regions, threads, tasks.

    Attributes:
        grant: the lease, renewed in the background; another one after the lease was lost and granted again.
        lost: set while the orchestrator says that the lease is no longer held.
        wanted: set when another job waits for the devices.
        losses: how often the lease was lost.
    """

    def __init__(self, grant: Grant) -> None:
        self.grant = grant
        self.lost = threading.Event()
        self.wanted = threading.Event()
        self.losses = 0
        self.began = time.monotonic()
        self.sharers: list[Sharer] = []

    @property
    def renewable(self) -> bool:
        """Whether the orchestrator expects to hear of it."""
        return bool(self.grant.lease_id) and not self.lost.is_set()


class Sharer:
    """One caller's share in a holding; what `acquire()` returns is one.

    Attributes:
        waited_s: how long this caller waited (seconds); 0 when its client held the groups already.
        restored: the job's state was put back on the devices for this caller.
    """

    def __init__(self, group_ids: tuple[str, ...]) -> None:
        self.group_ids = group_ids
        self.waited_s = 0.0
        self.restored = False
        self.owner = current_owner()
        self._holding: Holding | None = None
        self._last = Grant(group_ids)

    def attach(self, holding: Holding) -> None:
        """Makes it a share of that holding."""
        self._holding = holding
        holding.sharers.append(self)

    def detach(self) -> Holding | None:
        """Ends the share; the holding when it was the last one."""
        holding, self._holding = self._holding, None
        if holding is None:
            return None
        self._last = holding.grant
        holding.sharers.remove(self)
        return None if holding.sharers else holding

    @property
    def holding(self) -> Holding | None:
        """The holding that it shares; None once it has ended, and during `idle()`."""
        return self._holding

    @property
    def held(self) -> bool:
        """Whether this caller may use the devices, as far as is known."""
        return self._holding is not None and not self._holding.lost.is_set()

    @property
    def lease_id(self) -> str:
        """The orchestrator's name of the lease; empty in the modes off and observe."""
        return self._grant.lease_id

    @property
    def token(self) -> int:
        """The fencing token: a later grant has a greater one, for ever. Guard writes to shared storage with it."""
        return self._grant.token

    @property
    def lost(self) -> threading.Event:
        """Set while the lease is lost; by default the client asks for the group again at once, and clears it then."""
        return self._holding.lost if self._holding else threading.Event()

    @property
    def wanted(self) -> threading.Event:
        """Set when another job waits for the devices: a good moment to end the phase, and no duty."""
        return self._holding.wanted if self._holding else threading.Event()

    def check(self) -> None:
        """Raises LeaseLost when the lease is lost at this moment."""
        if self._holding is not None and self._holding.lost.is_set():
            raise lost_error(self._holding)

    @property
    def _grant(self) -> Grant:
        return self._holding.grant if self._holding else self._last

    def __repr__(self) -> str:
        state = "held" if self.held else "lost" if self._holding else "ended"
        return f"<{type(self).__name__} {'+'.join(self.group_ids)} {state} token={self.token}>"


def lost_error(holding: Holding) -> LeaseLost:
    """The error that says so."""
    groups = " and ".join(holding.grant.group_ids)
    return LeaseLost(f"the lease of {groups} was taken away", group_id=groups)


def _renew(holding: Holding, grant: Grant) -> None:
    holding.grant = grant
    holding.wanted.clear()
    holding.lost.clear()


class Holdings:
    """All holdings of one client; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Holding] = []

    def join(self, sharer: Sharer) -> bool:
        """Shares a holding that covers the sharer's groups, if there is a sound one."""
        wanted = set(sharer.group_ids)
        with self._lock:
            for holding in reversed(self._held):
                if wanted <= set(holding.grant.group_ids) and not holding.lost.is_set():
                    sharer.attach(holding)
                    return True
        return False

    def add(self, sharers: Iterable[Sharer], grant: Grant) -> Holding:
        """A new holding for these sharers."""
        holding = Holding(grant)
        with self._lock:
            for sharer in sharers:
                sharer.attach(holding)
            self._held.append(holding)
        return holding

    def leave(self, sharer: Sharer) -> Holding | None:
        """Ends a share; the holding when it was the last one, for its lease has to be given back."""
        with self._lock:
            ended = sharer.detach()
            if ended is not None:
                self._held.remove(ended)
            return ended

    def newest(self, group_ids: tuple[str, ...]) -> Sharer | None:
        """The newest share of exactly these groups, the caller's own before those of others."""
        owner = current_owner()
        with self._lock:
            shares = [s for h in self._held for s in h.sharers if s.group_ids == group_ids]
        own = [share for share in shares if share.owner == owner]
        return next(reversed(own or shares), None)

    def set_aside(self, group_ids: tuple[str, ...] | None) -> list[tuple[Holding, list[Sharer]]]:
        """Takes the holdings of these groups (None: all) out that nobody but the caller shares, with their sharers."""
        owner = current_owner()
        aside = []
        with self._lock:
            for holding in list(self._held):
                named = group_ids is None or set(group_ids) & set(holding.grant.group_ids)
                if named and all(sharer.owner == owner for sharer in holding.sharers):
                    self._held.remove(holding)
                    sharers = list(holding.sharers)
                    for sharer in sharers:
                        sharer.detach()
                    aside.append((holding, sharers))
        return aside

    def put_back(self, aside: list[tuple[Holding, list[Sharer]]], grant: Grant) -> None:
        """Makes one holding of what was set aside, with its new lease; it ends with the last of the sharers."""
        kept = aside[0][0]
        with self._lock:
            _renew(kept, grant)
            kept.began = time.monotonic()
            for _, sharers in aside:
                for sharer in sharers:
                    sharer.attach(kept)
            self._held.append(kept)

    def clear(self) -> list[Holding]:
        """Ends all shares."""
        with self._lock:
            ended, self._held = self._held, []
            for holding in ended:
                for sharer in list(holding.sharers):
                    sharer.detach()
        return ended

    def renewable(self) -> list[Grant]:
        """The leases that want renewing."""
        with self._lock:
            return [holding.grant for holding in self._held if holding.renewable]

    def mark_lost(self, lease_ids: Iterable[str]) -> list[Holding]:
        """Notes that these leases are lost; the holdings for which this is news."""
        found = self._named(lease_ids)
        news = [holding for holding in found if not holding.lost.is_set()]
        for holding in news:
            holding.losses += 1
            holding.lost.set()
        return news

    def mark_wanted(self, lease_ids: Iterable[str]) -> list[Holding]:
        """Notes that other jobs wait for these leases; the holdings for which this is news."""
        found = self._named(lease_ids)
        news = [holding for holding in found if not holding.wanted.is_set()]
        for holding in news:
            holding.wanted.set()
        return news

    def replace(self, holding: Holding, grant: Grant) -> bool:
        """Gives a lost holding its new lease; False when nobody shares it any more."""
        with self._lock:
            if holding not in self._held:
                return False
            _renew(holding, grant)
            return True

    def has(self, holding: Holding) -> bool:
        """Whether somebody still shares it."""
        with self._lock:
            return holding in self._held

    def _named(self, lease_ids: Iterable[str]) -> list[Holding]:
        ids = set(lease_ids)
        with self._lock:
            return [holding for holding in self._held if holding.grant.lease_id in ids]
