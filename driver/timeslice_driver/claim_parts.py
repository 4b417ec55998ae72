"""Parts that come from prepared claims: the kubelet plugin knows exactly which pod has which device for which job.

The claims are here for as long as they are prepared, whether or not the node can work yet (there may be no driver, or
the node of a rolling update's other half still has the devices). With a table they show in it as parts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from timeslice_driver.claims import PreparedClaim
from timeslice_driver.groups import Groups
from timeslice_driver.parts import Member, Part
from timeslice_driver.table import Table

log = logging.getLogger(__name__)


class Doors(Protocol):
    """What a claim's pods reach the node by."""

    async def open(self, claim: PreparedClaim) -> None:
        """Lets the claim's pods in. Safe to repeat."""
        ...

    async def close(self, uid: str) -> None:
        """Ends that; a claim that is not known is none to close."""
        ...


class ClaimParts:
    """The prepared claims of this node, and their parts.

    All claims of one member make one part: its devices and its pods are theirs together. `add`, `remove` and
    `refresh_pods` are idempotent and may come in any order; the kubelet plugin repeats them after a restart.

    Args:
        doors: opened for each claim before `add` returns, so that a container can start with them.
    """

    def __init__(self, doors: Doors | None = None) -> None:
        self._doors = doors
        self._claims: dict[str, PreparedClaim] = {}
        self._ended: set[Member] = set()  # their processes were there and are gone; the claims are still prepared
        self._table: Table | None = None
        self._on_end: Callable[[Member], None] = lambda _: None
        self._unlisten: Callable[[], None] = lambda: None
        self._listeners: list[Callable[[], None]] = []

    @property
    def claims(self) -> Mapping[str, PreparedClaim]:
        """By UID."""
        return self._claims

    @property
    def groups(self) -> Groups:
        """The groups that the claims make of their devices. A device is in one; the first claim on it decides."""
        devices: dict[str, list[str]] = {}
        owner: dict[str, str] = {}
        for claim in self._claims.values():
            for device_id in claim.device_ids:
                if owner.setdefault(device_id, claim.group_id) == claim.group_id:
                    listed = devices.setdefault(claim.group_id, [])
                    listed += [] if device_id in listed else [device_id]
        return Groups({group_id: tuple(sorted(ids)) for group_id, ids in sorted(devices.items())})

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Calls `listener` after each change of the claims; returns what ends it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def add(self, claim: PreparedClaim) -> None:
        """Makes the claim's part, or joins it to its member's; one that is there already is replaced.

        Raises:
            ConfigError: the claim's socket cannot be made; the claim is as before.
        """
        if self._doors:
            await self._doors.open(claim)
        self._keep(claim)

    async def remove(self, uid: str) -> None:
        """Takes a claim out. Its member's part ends with its last claim, and with the last process that still lives.
        One that is not known is none to remove."""
        claim = self._claims.pop(uid, None)
        if claim:
            log.info("%s of %s is no longer prepared", claim, claim.member, extra=claim.about)
            if not self._of(claim.member):
                self._ended.discard(claim.member)
            self._show(claim.member)
            self._tell()
        if self._doors:
            await self._doors.close(uid)

    async def refresh_pods(self, uid: str, pods: Mapping[str, str]) -> None:
        """Takes over the pods that a claim is for now (names by UID). One that is not known is passed over."""
        claim = self._claims.get(uid)
        if claim and dict(claim.pods) != dict(pods):
            self._keep(replace(claim, pods=dict(pods)))

    async def replace(self, claims: Iterable[PreparedClaim]) -> None:
        """Takes over the whole set of claims.

        Raises:
            ConfigError: a claim's socket cannot be made; the claims before it are there.
        """
        wanted = {claim.uid: claim for claim in claims}
        for uid in [uid for uid in self._claims if uid not in wanted]:
            await self.remove(uid)
        for claim in wanted.values():
            await self.add(claim)

    def attach(self, table: Table, on_end: Callable[[Member], None]) -> None:
        """Shows the claims in a table from now on; `on_end` is told of parts that end with their claims."""
        self._table, self._on_end = table, on_end
        self._ended.clear()
        for member in self._members():
            self._show(member)
        self._unlisten = table.listen(self._follow)

    def detach(self) -> None:
        """The table is no longer in use."""
        self._unlisten()
        self._table, self._on_end, self._unlisten = None, lambda _: None, lambda: None

    def ended(self, member: Member) -> None:
        """All processes of its part have ended, and the part has left the table."""
        if any(claim.member == member for claim in self._claims.values()):
            self._ended.add(member)

    @property
    def dormant(self) -> tuple[Part, ...]:
        """The parts, as they would be, of members whose processes have ended while their claims are prepared."""
        return tuple(self._joined(Part(member, ()), self._of(member)) for member in sorted(self._ended))

    def wake(self, member: Member) -> None:
        """New processes of its pods are there: it has a part again. One without a claim is passed over."""
        self._ended.discard(member)
        self._show(member)

    def _keep(self, claim: PreparedClaim) -> None:
        before = self._claims.get(claim.uid)
        if before == claim:
            return
        self._claims[claim.uid] = claim
        for member in {claim.member, before.member} if before else {claim.member}:
            self._ended.discard(member)
            self._show(member)
        self._tell()

    def _follow(self, member: Member) -> None:
        """A device that only an ended process still had is no longer its part's."""
        if self._table and self._table.get(member) and self._of(member):
            self._show(member)

    def _show(self, member: Member) -> None:
        if self._table is None or member in self._ended:
            return
        part, claims = self._table.get(member), self._of(member)
        if claims:
            self._table.put(self._joined(part or Part(member, ()), claims))
        elif part:
            self._let_go(part)

    def _let_go(self, part: Part) -> None:
        """What still lives of it stays in charge of the node until it has ended: it may be parked."""
        assert self._table
        if part.family:
            self._table.put(replace(part, pods=frozenset()))
        else:
            self._table.drop(part.member)
            self._on_end(part.member)

    def _joined(self, part: Part, claims: Iterable[PreparedClaim]) -> Part:
        """With the claims' devices, and those that its processes had before and may still have."""
        used = {device_id for held in part.held.values() for device_id in held.sizes}
        claimed = {device_id for claim in claims for device_id in claim.device_ids}
        pods = frozenset(uid for claim in claims for uid in claim.pods)
        return replace(part, device_ids=tuple(sorted(claimed | used)), pods=pods)

    def _of(self, member: Member) -> list[PreparedClaim]:
        return [claim for claim in self._claims.values() if claim.member == member]

    def _members(self) -> list[Member]:
        return sorted({claim.member for claim in self._claims.values()})

    def _tell(self) -> None:
        for listener in tuple(self._listeners):
            listener()
