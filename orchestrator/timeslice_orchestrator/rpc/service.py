"""What jobs and people call."""

# ruff: noqa: N802 - methods are named by the service

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import grpc.aio
from timeslice_api.names import checked_name
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb

from timeslice_orchestrator.access.caller import Act, Caller, Wish
from timeslice_orchestrator.access.gate import Gate
from timeslice_orchestrator.core.effects import (
    Granted,
    LeasesChecked,
    LeasesEnded,
    WithdrawAccepted,
    YieldAccepted,
)
from timeslice_orchestrator.core.model import GroupId
from timeslice_orchestrator.engine import Engine
from timeslice_orchestrator.rpc import answers, requests

_WATCH_PAUSE_S = 0.05  # at least, between two states of a group; what changes meanwhile is told in one
_WATCH_SHARE = 0.1  # of the loop's time at most, for one watcher: a group with thousands of waiters is much to tell
_RESET_S = 30.0  # a node asks the driver for 5 s at most, after what it does there at the moment

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # in quotes: at run time it takes no parameters


class OrchestratorService:
    """Servicer of `Orchestrator`. Errors are raised as `timeslice_api.errors`; `calls` makes them statuses.

    Args:
        engine: takes what is asked.
        gate: asked first, by every method.
    """

    def __init__(self, engine: Engine, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate

    async def Acquire(self, request: pb.AcquireRequest, context: _Context) -> pb.AcquireResponse:
        """A lease, or the place in the queue when the wait is over."""
        event, wait_s = requests.acquire(request), requests.wait_s(request)
        await self._gate.check(context, Wish(Act.ACQUIRE, event.job_id, event.group_ids))
        outcome = await self._engine.acquire(event, wait_s)
        if isinstance(outcome, Granted):
            return answers.granted(outcome)
        return answers.waiting(outcome)

    async def Yield(self, request: pb.YieldRequest, context: _Context) -> pb.YieldResponse:
        """Gives a lease back."""
        event = requests.yielded(request)
        await self._gate.check(context, Wish(Act.YIELD, event.job_id))
        accepted = await self._engine.do(event, YieldAccepted)
        return pb.YieldResponse(waiting=accepted.waiting, already_yielded=accepted.already_yielded)

    async def KeepAlive(self, request: pb.KeepAliveRequest, context: _Context) -> pb.KeepAliveResponse:
        """Renews leases."""
        event = requests.renewed(request)
        await self._gate.check(context, Wish(Act.KEEP_ALIVE, event.job_id))
        checked = self._engine.renew(event, LeasesChecked)
        return pb.KeepAliveResponse(lost_lease_ids=checked.lost, wanted_lease_ids=checked.wanted)

    async def Withdraw(self, request: pb.WithdrawRequest, context: _Context) -> pb.WithdrawResponse:
        """Takes a request back."""
        event = requests.withdrawn(request)
        await self._gate.check(context, Wish(Act.WITHDRAW, event.job_id))
        accepted = await self._engine.do(event, WithdrawAccepted)
        return pb.WithdrawResponse(withdrawn=accepted.withdrawn)

    async def ListGroups(self, request: pb.ListGroupsRequest, context: _Context) -> pb.ListGroupsResponse:
        """All groups that the caller may see."""
        caller = await self._gate.check(context, Wish(Act.SEE))
        seen = (view for view in self._engine.groups() if self._gate.sees(caller, view.group_id))
        return pb.ListGroupsResponse(groups=[answers.group(view, ids=caller.sees_ids) for view in seen])

    async def GetGroup(self, request: pb.GetGroupRequest, context: _Context) -> pb.Group:
        """One group."""
        group_id, caller = await self._seen(request.group_id, context)
        return answers.group(self._engine.view(group_id), ids=caller.sees_ids)

    async def WatchGroup(self, request: pb.WatchGroupRequest, context: _Context) -> None:
        """The group now and after each change, until the caller leaves."""
        group_id, caller = await self._seen(request.group_id, context)
        clock = asyncio.get_running_loop().time
        with self._engine.watching(group_id) as changed:
            while True:
                changed.clear()
                started = clock()
                state = answers.group(self._engine.view(group_id), ids=caller.sees_ids)
                pause_s = max(_WATCH_PAUSE_S, (clock() - started) / _WATCH_SHARE)
                await context.write(state)
                await asyncio.sleep(pause_s)
                await changed.wait()

    async def ForceRelease(self, request: pb.ForceReleaseRequest, context: _Context) -> pb.ForceReleaseResponse:
        """Takes leases away."""
        event = requests.force_released(request)
        async with self._gate.admin(context, Wish(Act.RELEASE, event.job_id, (event.group_id,))):
            ended = await self._engine.do_all(event, LeasesEnded)
        return pb.ForceReleaseResponse(lease_ids=[lease_id for effect in ended for lease_id in effect.lease_ids])

    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.DrainResponse:
        """Stops further grants in a group."""
        event = requests.drained(request)
        async with self._gate.admin(context, Wish(Act.DRAIN, group_ids=(event.group_id,))):
            await self._engine.do_all(event, object)
        return pb.DrainResponse()

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:
        """Ends a drain."""
        event = requests.resumed(request)
        async with self._gate.admin(context, Wish(Act.RESUME, group_ids=(event.group_id,))):
            await self._engine.do_all(event, object)
        return pb.ResumeResponse()

    async def Reset(self, request: pb.ResetRequest, context: _Context) -> pb.ResetResponse:
        """Ends a quarantine, if the drivers call the job's state sound."""
        event = requests.reset(request)
        async with self._gate.admin(context, Wish(Act.RESET, event.job_id, tuple(filter(None, [event.group_id])))):
            done = await self._engine.reset(event, _RESET_S)
        return pb.ResetResponse(group_ids=[member.group_id for member in done.members])

    async def _seen(self, name: str, context: _Context) -> tuple[GroupId, Caller]:
        """The name of a group that the caller may see, and the caller."""
        group_id = checked_name(name, "group_id")
        return group_id, await self._gate.check(context, Wish(Act.SEE, group_ids=(group_id,)))
