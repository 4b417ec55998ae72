"""The rpc of acquire and yield: decisions come from `acquisition` and `session`, waits from `calls`."""

from __future__ import annotations

import logging
from typing import Any

import grpc
from timeslice_api.errors import LeaseLost, NotHolder, TimesliceError
from timeslice_api.status import from_rpc

from timeslice.acquisition import Acquisition, Grant
from timeslice.calls import Method, async_call, async_sleep
from timeslice.holding import Holding, Sharer
from timeslice.session import Session

log = logging.getLogger("timeslice")

NOW_S = 2.0  # how long a yield or withdrawal keeps its caller; then it goes on in the background


async def begin(session: Session, sharer: Sharer, timeout: float | None) -> None:
    """Attaches the sharer to a lease: one that its client holds already, or a new one.

    Raises:
        AcquireTimeout: not granted within `timeout` seconds. The request has left the queue.
        TimesliceError: refused.
    """
    session.check_usable()
    if session.holdings.join(sharer):
        return
    if not session.takes_turns:
        session.began(sharer, Grant(sharer.group_ids))
        return
    acquisition = session.acquisition(sharer.group_ids, timeout)
    try:
        session.began(sharer, await _granted(acquisition))
    except BaseException:  # Ctrl-C and cancellation too: nothing may stay in the queue, or be granted to nobody
        await _withdraw(session, acquisition)
        raise


async def register(session: Session, group_ids: tuple[str, ...], timeout: float | None) -> None:
    """Only registers this process with its node, for a rank whose job's lease another process holds.

    Raises:
        AcquireTimeout: the node does not answer within `timeout` seconds.
        TimesliceError: refused.
    """
    session.check_usable()
    acquisition = session.acquisition(group_ids, timeout)
    while acquisition.registering:
        await _step(acquisition)
    session.registered(group_ids)


async def end(session: Session, sharer: Sharer) -> None:
    """Ends a share, and gives the lease back when it was the last one.

    When the orchestrator does not answer, the yield is delivered in the background and this returns.

    Raises:
        TimesliceError: the orchestrator refused the yield.
        LeaseLost: see `Session.yielded`.
    """
    if session.forked or session.closed:
        return
    holding = session.holdings.leave(sharer)
    if holding is not None:
        await give_back(session, holding)


async def give_back(session: Session, holding: Holding) -> None:
    """Yields the lease of a holding that nobody shares any more."""
    request = session.yielding(holding)
    answer = None
    if request is not None:
        try:
            answer = await _now_or_later(session, session.stub.Yield, request, "a yield")
        except (LeaseLost, NotHolder):  # the second says an orchestrator that has lost its state
            holding.lost.set()
    session.yielded(holding, answer)


async def end_after(session: Session, sharer: Sharer, error: BaseException | None) -> None:
    """Ends the share of a region; a failure to do so never hides the error that ended the region's body."""
    if error is None:
        await end(session, sharer)
        return
    try:
        await end(session, sharer)
    except TimesliceError as failure:
        _note(error, f"the group was not given back in order: {failure}")


async def resume(session: Session, aside: list[tuple[Holding, list[Sharer]]], timeout: float | None) -> None:
    """Acquires again what was set aside, all of it at once."""
    groups = {group for holding, _ in aside for group in holding.grant.group_ids}
    session.check_usable()
    grant = Grant(tuple(sorted(groups)))
    if not session.takes_turns:
        session.holdings.put_back(aside, grant)
        return
    acquisition = session.acquisition(grant.group_ids, timeout)
    try:
        grant = await _granted(acquisition)
        session.holdings.put_back(aside, grant)
        session.attend(grant)
    except BaseException:
        await _withdraw(session, acquisition)
        raise


async def resume_after(
    session: Session,
    aside: list[tuple[Holding, list[Sharer]]],
    timeout: float | None,
    *,
    error: BaseException | None,
) -> None:
    """Acquires again after a block; a failure to do so never hides the error that ended the block."""
    try:
        await resume(session, aside, timeout)
    except TimesliceError as failure:
        if error is None:
            raise
        _note(error, f"the group was not acquired again: {failure}")


async def regain(session: Session, holding: Holding, acquisition: Acquisition) -> None:
    """Gets a lost lease again, as long as somebody shares the holding."""
    try:
        while session.holdings.has(holding) and not session.closed:
            grant = await _step(acquisition)
            if grant is not None:
                session.regained(holding, grant)
                return
    except (TimesliceError, ValueError) as error:  # ValueError: the channel was closed meanwhile
        log.warning("%s cannot be held again: %s", " and ".join(holding.grant.group_ids), error)


def _note(error: BaseException, text: str) -> None:
    log.warning("after %s: %s", type(error).__name__, text)
    error.add_note(f"timeslice: {text}")


async def _granted(acquisition: Acquisition) -> Grant:
    while True:
        grant = await _step(acquisition)
        if grant is not None:
            return grant


async def _step(acquisition: Acquisition) -> Grant | None:
    call = acquisition.next_call()
    try:
        answer = await async_call(call.method, call.request, call.timeout)
    except grpc.RpcError as error:
        await async_sleep(acquisition.failed(error))
        return None
    return acquisition.answered(answer)


async def _withdraw(session: Session, acquisition: Acquisition) -> None:
    if not acquisition.may_be_queued:
        return
    try:
        await _now_or_later(session, session.stub.Withdraw, acquisition.withdrawal(), "a withdrawal")
    except TimesliceError as refusal:  # the orchestrator has heard it, so there is no ghost
        log.debug("the withdrawal was refused: %s", refusal)


async def _now_or_later(session: Session, method: Method, request: Any, what: str) -> Any:
    """The answer, or None when it has to be delivered in the background."""
    try:
        return await async_call(method, request, NOW_S)
    except grpc.RpcError as rpc_error:
        error = from_rpc(rpc_error)
        if not error.retryable:
            raise error from rpc_error
        log.warning("%s is delivered later: %s", what, error.message)
        session.delivery.add(method, request, what)
        return None
    except BaseException:
        session.delivery.add(method, request, what)
        raise
