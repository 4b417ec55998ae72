"""What leaves, and when: gathers what steps want saved, sent and answered, writes, and lets it out when it is durable.

Events of a few turns of the loop become one write, and while that is under way the next one gathers. A write that fails
is tried again with all that has gathered since; what it held back leaves in the order in which it was decided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from timeslice_api.errors import StoreFailed

from timeslice_orchestrator.core.effects import Effect, Granted, LeasesEnded, Refused, ResetDone, SendCommand
from timeslice_orchestrator.unwritten import Unwritten
from timeslice_orchestrator.waits import Wait, Waits, fail, stopping

_GATHERED_TURNS = 12  # a sixth more hand-offs a second than 4 when busy; costs a quiet orchestrator about 0.2 ms
# The others are answers to calls, which fail now and ask again.
_KEPT = SendCommand | Refused | LeasesEnded | ResetDone


@dataclass(slots=True)
class _Batch:
    """What leaves with one write: effects in order, calls to be answered, Acquires whose step is in it."""

    effects: list[Effect] = field(default_factory=list)
    calls: list[asyncio.Future[None]] = field(default_factory=list)
    asked: list[Wait] = field(default_factory=list)

    def then(self, later: _Batch) -> _Batch:
        """Both, in order."""
        return _Batch(self.effects + later.effects, self.calls + later.calls, self.asked + later.asked)


class Outgoing:
    """One engine's way out.

    Args:
        unwritten: the records, and the store.
        waits: the Acquires; those whose grant could not be written are failed.
        carry_out: lets an effect out.
        may_leave: asked at each time that something would leave; once it says no, nothing does any more.
        wrote: told how long each write took (seconds), until it was durable or had failed.
    """

    def __init__(
        self,
        unwritten: Unwritten,
        waits: Waits,
        *,
        carry_out: Callable[[Effect], None],
        may_leave: Callable[[], bool],
        wrote: Callable[[float], None] | None = None,
    ) -> None:
        self._unwritten = unwritten
        self._waits = waits
        self._carry_out = carry_out
        self._may_leave = may_leave
        self._wrote = wrote
        self._loop = asyncio.get_running_loop()
        self._next = _Batch()  # gathers
        self._leaving = _Batch()  # leaves when the flight has landed
        self._over: list[Wait] = []
        self._gathering: asyncio.Handle | None = None
        self._flight: asyncio.Future[None] | None = None  # the write that is under way
        self._flush_after = False  # once more, when it has landed
        self._began_at = 0.0

    @property
    def pending(self) -> bool:
        """Whether something was decided that is not durable yet."""
        return self._gathering is not None or self._flight is not None

    def add(self, effect: Effect) -> None:
        """Lets an effect out with the next write."""
        self._next.effects.append(effect)
        self.flush_soon()

    def call(self) -> asyncio.Future[None]:
        """Done when all that was decided until now is durable; StoreFailed when it could not be written."""
        call: asyncio.Future[None] = self._loop.create_future()
        self._next.calls.append(call)
        self.flush_soon()
        return call

    def asked(self, wait: Wait) -> None:
        """Fails the wait with StoreFailed if the next write fails."""
        self._next.asked.append(wait)

    def end(self, wait: Wait) -> None:
        """Ends a wait without a grant, but not before a grant that is on its way to the store."""
        if self.pending and self._unwritten.failure is None:
            self._over.append(wait)
        elif not wait.done():
            wait.set_result(None)

    def flush_soon(self) -> None:
        """Writes within a few turns of the loop, or when the write that is under way has ended."""
        if self._gathering is None:
            self._gather(_GATHERED_TURNS)

    def flush(self) -> None:
        """Writes now, or when the write that is under way has ended."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        if self._flight is not None:
            self._flush_after = True
            return
        self._began_at = self._loop.time()
        try:
            flight = self._unwritten.write()
        except StoreFailed as error:
            self._hold_back(error)
            return
        self._leaving, self._next = self._next, _Batch()
        if flight is None:
            self._send_out()
        else:
            self._flight = flight
            flight.add_done_callback(self._landed)

    async def finish(self, within_s: float) -> None:
        """Writes all that was decided, if that takes no longer, and abandons the rest."""
        self.flush()
        deadline = self._loop.time() + within_s
        while self._flight is not None and (left_s := deadline - self._loop.time()) > 0:
            await asyncio.wait({self._flight}, timeout=left_s)
        self.abandon()

    def abandon(self) -> None:
        """Nothing is written and nothing leaves any more; calls end with Stopping."""
        flight, self._flight = self._flight, None
        for handle in (self._gathering, flight):
            if handle is not None:
                handle.cancel()
        self._gathering = None
        for call in self._leaving.then(self._next).calls:
            fail(call, stopping())

    def _gather(self, turns: int) -> None:
        """Turns are short in a quiet loop; in a busy one they are long, and what the calls of other jobs want written
        meanwhile joins the write."""
        if turns:
            self._gathering = self._loop.call_soon(self._gather, turns - 1)
        else:
            self.flush()

    def _landed(self, flight: asyncio.Future[None]) -> None:
        if flight.cancelled():
            return
        self._flight = None
        flush_after, self._flush_after = self._flush_after, False
        error = flight.exception()
        if isinstance(error, StoreFailed):
            self._next, self._leaving = self._leaving.then(self._next), _Batch()
            self._hold_back(error)
        else:
            assert error is None  # Unwritten lets no other out
            self._send_out()
            if flush_after:
                self.flush()

    def _send_out(self) -> None:
        self._tell_time()
        if not self._may_leave():
            return  # it was durable too late to be acted on; whoever leads now has read it
        leaving, self._leaving = self._leaving, _Batch()
        for effect in leaving.effects:
            self._carry_out(effect)
        for call in leaving.calls:
            if not call.done():
                call.set_result(None)
        self._end_overdue()

    def _hold_back(self, error: StoreFailed) -> None:
        self._tell_time()
        held = self._next
        for effect in held.effects:
            if isinstance(effect, Granted):
                self._waits.fail(effect.request_id, error)
        for call in held.calls:
            fail(call, error)
        for wait in held.asked:
            fail(wait, error)
        # Answers are not kept: whoever asks again is answered anew.
        self._next = _Batch([kept for kept in held.effects if isinstance(kept, _KEPT)])
        self._end_overdue()
        if self._gathering is not None:
            self._gathering.cancel()
        self._gathering = self._loop.call_later(self._unwritten.retry_s, self.flush)

    def _end_overdue(self) -> None:
        over, self._over = self._over, []
        for wait in over:
            if not wait.done():
                wait.set_result(None)

    def _tell_time(self) -> None:
        if self._wrote is not None:
            self._wrote(self._loop.time() - self._began_at)
