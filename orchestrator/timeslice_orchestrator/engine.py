"""The one owner of the core: feeds it events, makes what it saves durable, and carries its effects out.

The order is kept: what a step wants saved is durable before anything that the step wants sent, or answered, leaves.

When a write fails, the core has already taken its step, so it is ahead of the store. Then nothing of it gets out:
commands to nodes are kept back in order, the calls that wait for an answer fail with StoreFailed, and the records are
tried again before anything else is sent, by a timer and, where the store answers at once, by each call that comes in.
Calls that would change something are refused before their step for as long as that lasts, so the lead stays what the
first failure made it plus what nodes report, which are facts. Asking again with the same ids finds each outcome, so a
lease is neither lost nor given twice: had the process died meanwhile, the store would say what everybody outside was
told.

Where several processes stand for one office, `in_office` is asked before anything is taken or leaves: one that was
stopped for a while, and is not the leader any more, must find out before it speaks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

from timeslice_api.errors import RequestEnded, Stopping, StoreFailed, Unavailable

from timeslice_orchestrator.core.effects import (
    Drop,
    Effect,
    Granted,
    GroupChanged,
    LeasesEnded,
    Refused,
    ResetDone,
    Save,
    SendCommand,
    WakeAt,
    WithdrawAccepted,
)
from timeslice_orchestrator.core.events import AcquireRequested, Event, ResetRequested, Tick, WaiterDetached
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.core.model import GroupId, GroupView, RequestId, WaitingView
from timeslice_orchestrator.outgoing import Outgoing
from timeslice_orchestrator.store import NodeRecord, Store
from timeslice_orchestrator.unwritten import Unwritten
from timeslice_orchestrator.waits import Resets, Waits, Watchers, stopping

_log = logging.getLogger(__name__)

_REARM_S = 1.0  # after a defect of ours in a tick
_STOP_S = 2.0  # for what is on its way to the store

_T = TypeVar("_T")


class Observer(Protocol):
    """Who is told of everything, to make figures of it and to show it."""

    def stepped(self, event: Event, effects: Iterable[Effect]) -> None:
        """The core has taken an event."""

    def wrote(self, seconds: float) -> None:
        """A write to the store took so long, until it was durable or had failed."""


class Engine:
    """Runs a core inside the running loop, whose clock is the core's.

    Args:
        core: nobody else may step it.
        store: where its records go.
        send: hands a command to the link of its node; called only when all that was decided before is durable.
        observer: told of every step and write.
        in_office: whether this process may act, at this very moment; once it has said no, it goes on to.
    """

    def __init__(
        self,
        core: Core,
        store: Store,
        send: Callable[[SendCommand], None],
        *,
        observer: Observer | None = None,
        in_office: Callable[[], bool] | None = None,
    ) -> None:
        self._core = core
        self._send = send
        self._observer = observer
        self._in_office = in_office or _always
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._unwritten = Unwritten(store)
        self._waits = Waits()
        self._resets = Resets()
        self._watchers = Watchers()
        self._outgoing = Outgoing(
            self._unwritten,
            self._waits,
            carry_out=self._carry_out,
            may_leave=self._in_office,
            wrote=observer.wrote if observer else None,
        )
        self._waking: asyncio.TimerHandle | None = None
        self._stopped = False

    # What clients ask

    async def do(self, event: Event, answer: type[_T]) -> _T:
        """Takes a client's event that has exactly one effect of that type; see `do_all`."""
        (found,) = await self.do_all(event, answer)
        return found

    async def do_all(self, event: Event, answer: type[_T]) -> list[_T]:
        """Takes a client's event. Returns its effects of that type, once all that it saves is durable.

        Raises:
            TimesliceError: the event is refused (nothing changed), or StoreFailed, or Stopping.
        """
        self._admit()
        effects = self._step(event)
        if self._outgoing.pending:
            await self._outgoing.call()
        return [effect for effect in effects if isinstance(effect, answer)]

    def renew(self, event: Event, answer: type[_T]) -> _T:
        """Like `do` for an event whose answer promises nothing that a restart could break: a renewal of leases.
        It is answered while the store fails, too, so that holders go on."""
        self.refuse_when_stopped()
        return next(effect for effect in self._step(event) if isinstance(effect, answer))

    async def acquire(self, event: AcquireRequested, wait_s: float) -> Granted | WaitingView:
        """Asks, and waits for the grant at most `wait_s` seconds.

        When the caller is cancelled, or its time is over, and no other call for the same request is here, the core is
        told that the waiter is detached.

        Raises:
            TimesliceError: the request is refused or has ended, or StoreFailed, or Stopping.
        """
        granted: Granted | None = None
        try:
            granted = await self._ask(event, wait_s)
            if granted is None:
                if place := self._waiting(event.request_id):
                    return place
                # A grant of the same turn as the end of the wait missed this call: ask once more to hear it.
                granted = await self._granted(event)
            return granted
        finally:
            if granted is None and event.request_id not in self._waits:
                self.post(WaiterDetached(event.request_id))

    async def reset(self, event: ResetRequested, wait_s: float) -> ResetDone:
        """Asks for a reset, and waits for its outcome.

        Raises:
            TimesliceError: it is refused, or Unavailable when a node has not answered within `wait_s` seconds.
        """
        self._admit()
        with self._resets.waiting(event.reset_id) as outcome:
            self._step(event)
            try:
                async with asyncio.timeout(wait_s):
                    done = await outcome
            except TimeoutError:
                message = f"a node has not told the state of {event.job_id} within {wait_s:g} s"
                raise Unavailable(message, hint="`timeslice status` names it", job_id=event.job_id) from None
        if done.error is not None:
            raise done.error
        return done

    async def _granted(self, event: AcquireRequested) -> Granted:
        if granted := await self._ask(event, 0):
            return granted
        raise RequestEnded(f"request {event.request_id} has ended", job_id=event.job_id)

    async def _ask(self, event: AcquireRequested, wait_s: float) -> Granted | None:
        self._admit()
        self._store.check_room(event)
        self._step(event)
        with self._waits.waiting(event.request_id) as wait:
            self._outgoing.asked(wait)
            timer = self._loop.call_later(wait_s, self._outgoing.end, wait)
            try:
                return await wait
            finally:
                timer.cancel()

    def _waiting(self, request_id: RequestId) -> WaitingView | None:
        try:
            return self._core.waiting(request_id, self._loop.time())
        except KeyError:
            return None

    # What happens by itself

    def post(self, event: Event) -> None:
        """Takes a fact: from a node, from discovery, or a client that is gone."""
        if not self._stopped and self._in_office():
            self._step(event)

    def save(self, node: NodeRecord) -> None:
        """Makes a node's declaration durable with the next write."""
        self._unwritten.put(node)
        self._outgoing.flush_soon()

    # What people see

    def groups(self) -> list[GroupView]:
        """All groups, sorted by id."""
        return [self.view(group_id) for group_id in self._core.groups()]

    def view(self, group_id: GroupId) -> GroupView:
        """A group now. Raises GroupNotFound, Stopping."""
        self.refuse_when_stopped()
        return self._core.view(group_id, self._loop.time())

    def watching(self, group_id: GroupId) -> AbstractContextManager[asyncio.Event]:
        """An event that is set at each change of the group, and at the stop; the watcher clears it."""
        return self._watchers.watching(group_id)

    # The end

    async def stop(self, within_s: float = _STOP_S) -> None:
        """Ends every waiting call with Stopping; the requests keep their places in the store. Takes no event any more.

        What could not be written within the time is lost with a log line.
        """
        self._stopped = True
        await self._outgoing.finish(within_s)
        self.abandon()

    def abandon(self) -> None:
        """Ends at once: nothing is written, sent or granted any more, and every waiting call ends with Stopping."""
        self._stopped = True
        self._outgoing.abandon()
        if self._waking is not None:
            self._waking.cancel()
        self._waits.fail_all(stopping())
        self._resets.fail_all(stopping())
        self._watchers.wake_all()
        if lost := len(self._unwritten):
            why = self._unwritten.failure.message if self._unwritten.failure else "no time was left"
            _log.error("stopped with %d records unwritten: %s", lost, why)

    def refuse_when_stopped(self) -> None:
        """Raises Stopping after the end, and when this process is not in office any more."""
        if self._stopped:
            raise stopping()
        if not self._in_office():
            raise Stopping("this orchestrator leads no longer; its successor has the request's place")

    # The turn: step, write, send

    def _admit(self) -> None:
        self.refuse_when_stopped()
        if self._unwritten.failure is not None and self._unwritten.at_once:
            self._outgoing.flush()
        if (failure := self._unwritten.failure) is not None:
            raise StoreFailed(failure.message, hint=failure.hint)

    def _step(self, event: Event) -> list[Effect]:
        effects = self._core.step(event, self._loop.time())
        for effect in effects:
            self._sort(effect)
        if self._observer is not None:
            self._observer.stepped(event, effects)
        return effects

    def _sort(self, effect: Effect) -> None:
        match effect:
            case Save() | Drop():
                self._unwritten.put(effect)
                self._outgoing.flush_soon()
            case WakeAt(at):
                self._wake_at(at)
            case GroupChanged(group_id):
                self._watchers.wake(group_id)
            case Granted() | Refused() | WithdrawAccepted() | SendCommand() | LeasesEnded() | ResetDone():
                self._outgoing.add(effect)

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case Granted():
                self._waits.grant(effect)
            case Refused(request_id, error):
                self._waits.fail(request_id, error)
            case WithdrawAccepted(request_id, withdrawn=True):
                self._waits.fail(request_id, RequestEnded(f"request {request_id} was withdrawn"))
            case SendCommand():
                self._send(effect)
            case ResetDone():
                self._resets.done(effect)
            case LeasesEnded(lease_ids, job_id, reason):
                named = ",".join(lease_ids)
                fields = {"job_id": job_id, "lease_id": named, "reason": reason}
                _log.warning("leases ended job=%s leases=%s: %s", job_id, named, reason, extra=fields)

    def _wake_at(self, at: float) -> None:
        if self._waking is not None:
            if self._waking.when() == at:
                return
            self._waking.cancel()
        self._waking = self._loop.call_at(at, self._tick)

    def _tick(self) -> None:
        self._waking = None
        try:
            self.post(Tick())
        except Exception:  # noqa: BLE001 - outermost frame of a timer: a defect in one tick must not end all later ones
            _log.exception("a tick of the core failed")
            self._wake_at(self._loop.time() + _REARM_S)


def _always() -> bool:
    return True
