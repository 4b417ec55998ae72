"""What people see of a group with kubectl: fields of its status, from the engine's view, at most once a second."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import Any

from timeslice_api.errors import GroupNotFound, Stopping, StoreFailed

from timeslice_orchestrator.core.effects import Effect, GroupChanged
from timeslice_orchestrator.core.events import Event
from timeslice_orchestrator.core.model import GroupId, GroupView, MemberView, Setback
from timeslice_orchestrator.kubernetes.status_store import Shown, StatusStore

_log = logging.getLogger(__name__)

Setbacks = tuple[Setback, ...]

_EVERY_S = 1.0
_REFRESH_S = 30.0  # a duty cycle moves while nothing happens
_MAX_MEMBERS = 64
_MAX_NODES = 16  # of a member
_MAX_REASON = 300  # characters


def shown(view: GroupView) -> dict[str, Any]:
    """The fields, of bounded size."""
    return {
        "holder": ",".join(holder.job_id for holder in view.holders),
        "waiting": len(view.waiters),
        "dutyCycle": f"{view.duty_cycle:.0%}",
        "members": [_member(member) for member in view.members[:_MAX_MEMBERS]],
    }


def _member(member: MemberView) -> dict[str, Any]:
    states = sorted({part.state.value for part in member.parts})
    fields: dict[str, Any] = {
        "job": member.job_id,
        "state": ",".join(states),
        "nodes": [part.node for part in member.parts[:_MAX_NODES]],
        "bytes": sum(part.bytes_ for part in member.parts),
    }
    if member.quarantine_reason:
        fields["quarantine"] = member.quarantine_reason[:_MAX_REASON]
    return fields


class Showing:
    """Follows the groups as an observer of the engine, and has the store write what has changed.

    What is due goes along with the group's records when these are written; only what is left is a write of its own.

    Args:
        store: writes it.
        view: of a group.
        setbacks: told of each group's, as often as it is shown.
    """

    def __init__(
        self, store: StatusStore, view: Callable[[GroupId], GroupView], setbacks: Callable[[GroupId, Setbacks], None]
    ) -> None:
        self._store = store
        self._view = view
        self._setbacks = setbacks
        self._loop = asyncio.get_running_loop()
        self._changed: dict[GroupId, None] = {}
        self._written_at: dict[GroupId, float] = {}
        self._wake = asyncio.Event()
        store.freshen = self._freshen

    def stepped(self, event: Event, effects: Iterable[Effect]) -> None:
        """See `engine.Observer`."""
        for effect in effects:
            if isinstance(effect, GroupChanged):
                self._changed[effect.group_id] = None
                self._wake.set()

    def wrote(self, seconds: float) -> None:
        """See `engine.Observer`."""

    async def run(self) -> None:
        """Writes what has changed, until it is cancelled."""
        refresh_at = self._loop.time() + _REFRESH_S
        while True:
            try:
                async with asyncio.timeout_at(refresh_at):
                    await self._wake.wait()
            except TimeoutError:
                self._changed.update(dict.fromkeys(self._written_at))
                refresh_at = self._loop.time() + _REFRESH_S
            self._wake.clear()
            await self._write_due()
            await asyncio.sleep(_EVERY_S)
            if self._changed:
                self._wake.set()

    async def _write_due(self) -> None:
        due = [group_id for group_id in self._changed if self._is_due(group_id)]
        for failure in await asyncio.gather(*map(self._store.write_group, due), return_exceptions=True):
            if isinstance(failure, StoreFailed):
                _log.warning("%s; tried again", failure, extra={"group_id": failure.group_id})
                if failure.group_id:
                    self._changed[failure.group_id] = None
            elif isinstance(failure, BaseException):
                raise failure

    def _is_due(self, group_id: GroupId) -> bool:
        return self._loop.time() - self._written_at.get(group_id, 0.0) >= _EVERY_S

    def _freshen(self, group_id: GroupId) -> Shown | None:
        """What is to be written now, if the group has changed and was not written a moment ago."""
        if group_id not in self._changed or not self._is_due(group_id):
            return None
        del self._changed[group_id]
        self._written_at[group_id] = self._loop.time()
        try:
            view = self._view(group_id)
        except (GroupNotFound, Stopping):
            self._written_at.pop(group_id)
            self._setbacks(group_id, ())
            return None
        self._setbacks(group_id, view.setbacks)
        return shown(view)
