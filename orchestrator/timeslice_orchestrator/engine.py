"""The one owner of the core: feeds it events, makes what it saves durable, and carries its effects out.

Events of a few turns of the loop become one transaction. The order is kept: what a step wants saved is on disk before
anything that the step wants sent, or answered, leaves.

When a write fails, the core has already taken its step, so it is ahead of the disk. Then nothing of it gets out:
commands to nodes are kept back in order, the calls that wait for an answer fail with StoreFailed, and the records are
tried again before anything else is sent, by a timer and by each call that comes in. Calls that would change something
are refused before their step for as long as that lasts, so the lead stays what the first failure made it plus what
nodes report, which are facts. Asking again with the same ids finds each outcome, so a lease is neither lost nor given
twice: had the process died meanwhile, the disk would say what everybody outside was told.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TypeVar

from timeslice_api.errors import RequestEnded, Stopping, StoreFailed

from timeslice_orchestrator.core.effects import (
    Drop,
    Effect,
    Granted,
    GroupChanged,
    LeasesEnded,
    Refused,
    Save,
    SendCommand,
    WakeAt,
    WithdrawAccepted,
)
from timeslice_orchestrator.core.events import AcquireRequested, Event, Tick, WaiterDetached
from timeslice_orchestrator.core.machine import Core
from timeslice_orchestrator.core.model import GroupId, GroupView, RequestId, WaitingView
from timeslice_orchestrator.store import NodeRecord, Store
from timeslice_orchestrator.unwritten import Unwritten
from timeslice_orchestrator.waits import Wait, Waits, Watchers, fail

_log = logging.getLogger(__name__)

_GATHERED_TURNS = 12  # a sixth more hand-offs a second than 4 when busy; costs a quiet orchestrator about 0.2 ms
_REARM_S = 1.0  # after a defect of ours in a tick

_T = TypeVar("_T")


class Engine:
    """Runs a core inside the running loop, whose clock is the core's.

    Args:
        core: nobody else may step it.
        store: where its records go.
        send: hands a command to the link of its node; called only when all that was decided before is durable.
    """

    def __init__(self, core: Core, store: Store, send: Callable[[SendCommand], None]) -> None:
        self._core = core
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._unwritten = Unwritten(store)
        self._unsent: list[Effect] = []
        self._calls: list[asyncio.Future[None]] = []  # answered when their step is durable
        self._asked: list[Wait] = []  # Acquires whose step is not durable yet
        self._waits = Waits()
        self._watchers = Watchers()
        self._flushing: asyncio.Handle | None = None
        self._waking: asyncio.TimerHandle | None = None
        self._stopped = False

    # What clients ask

    async def do(self, event: Event, answer: type[_T]) -> _T:
        """Takes a client's event that has exactly one effect of that type; see `do_all`."""
        (found,) = await self.do_all(event, answer)
        return found

    async def do_all(self, event: Event, answer: type[_T]) -> list[_T]:
        """Takes a client's event. Returns its effects of that type, once all that it saves is on disk.

        Raises:
            TimesliceError: the event is refused (nothing changed), or StoreFailed, or Stopping.
        """
        self._admit()
        effects = self._step(event)
        if self._flushing is not None:
            call: asyncio.Future[None] = self._loop.create_future()
            self._calls.append(call)
            await call
        return [effect for effect in effects if isinstance(effect, answer)]

    def renew(self, event: Event, answer: type[_T]) -> _T:
        """Like `do` for an event whose answer promises nothing that a restart could break: a renewal of leases.
        It is answered while the disk is full, too, so that holders go on."""
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

    async def _granted(self, event: AcquireRequested) -> Granted:
        if granted := await self._ask(event, 0):
            return granted
        raise RequestEnded(f"request {event.request_id} has ended", job_id=event.job_id)

    async def _ask(self, event: AcquireRequested, wait_s: float) -> Granted | None:
        self._admit()
        self._step(event)
        with self._waits.waiting(event.request_id) as wait:
            self._asked.append(wait)
            timer = self._loop.call_later(wait_s, self._end_wait, wait)
            try:
                return await wait
            finally:
                timer.cancel()

    def _end_wait(self, wait: Wait) -> None:
        if self._flushing is not None and self._unwritten.failure is None:  # the grant may be under way to the disk
            self._loop.call_soon(self._end_wait, wait)
        elif not wait.done():
            wait.set_result(None)

    def _waiting(self, request_id: RequestId) -> WaitingView | None:
        try:
            return self._core.waiting(request_id, self._loop.time())
        except KeyError:
            return None

    # What happens by itself

    def post(self, event: Event) -> None:
        """Takes a fact: from a node, from discovery, or a client that is gone."""
        if not self._stopped:
            self._step(event)

    def save(self, node: NodeRecord) -> None:
        """Makes a node's declaration durable with the next write."""
        self._unwritten.put(node)
        self._flush_soon()

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

    def stop(self) -> None:
        """Ends every waiting call with Stopping; the requests keep their places in the store. Takes no event any more.

        What could not be written until now is lost with a log line.
        """
        self._flush()
        self._stopped = True
        for handle in (self._waking, self._flushing):
            if handle is not None:
                handle.cancel()
        self._waits.fail_all(_stopping())
        self._watchers.wake_all()
        if self._unwritten.failure is not None:
            _log.error("stopped with %d records unwritten: %s", len(self._unwritten), self._unwritten.failure.message)

    def refuse_when_stopped(self) -> None:
        """Raises Stopping after `stop`."""
        if self._stopped:
            raise _stopping()

    # The turn: step, write, send

    def _admit(self) -> None:
        self.refuse_when_stopped()
        if self._unwritten.failure is not None:
            self._flush()
        if self._unwritten.failure is not None:
            raise StoreFailed(self._unwritten.failure.message)

    def _step(self, event: Event) -> list[Effect]:
        effects = self._core.step(event, self._loop.time())
        for effect in effects:
            self._sort(effect)
        return effects

    def _sort(self, effect: Effect) -> None:
        match effect:
            case Save() | Drop():
                self._unwritten.put(effect)
                self._flush_soon()
            case WakeAt(at):
                self._wake_at(at)
            case GroupChanged(group_id):
                self._watchers.wake(group_id)
            case Granted() | Refused() | WithdrawAccepted() | SendCommand() | LeasesEnded():
                self._unsent.append(effect)
                self._flush_soon()

    def _flush_soon(self) -> None:
        if self._flushing is None:
            self._gather(_GATHERED_TURNS)

    def _gather(self, turns: int) -> None:
        """Writes after so many turns of the loop. They are short in a quiet loop; in a busy one they are long, and what
        the calls of other jobs want written meanwhile joins the transaction."""
        if turns:
            self._flushing = self._loop.call_soon(self._gather, turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        if self._flushing is not None:
            self._flushing.cancel()
            self._flushing = None
        try:
            self._unwritten.write()
        except StoreFailed as error:
            self._hold_back(error)
        else:
            self._send_out()

    def _send_out(self) -> None:
        unsent, self._unsent = self._unsent, []
        calls, self._calls = self._calls, []
        self._asked.clear()
        for effect in unsent:
            self._carry_out(effect)
        for call in calls:
            if not call.done():
                call.set_result(None)

    def _hold_back(self, error: StoreFailed) -> None:
        for effect in self._unsent:
            if isinstance(effect, Granted):
                self._waits.fail(effect.request_id, error)
        # Answers are not kept: whoever asks again is answered anew.
        self._unsent = [effect for effect in self._unsent if isinstance(effect, SendCommand | Refused | LeasesEnded)]
        for call in self._calls:
            fail(call, error)
        for wait in self._asked:
            fail(wait, error)
        self._calls.clear()
        self._asked.clear()
        self._flushing = self._loop.call_later(self._unwritten.retry_s, self._flush)

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
            case LeasesEnded(lease_ids, job_id, reason):
                _log.warning("leases ended job=%s leases=%s: %s", job_id, ",".join(lease_ids), reason)

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


def _stopping() -> Stopping:
    return Stopping("the orchestrator is being stopped")
