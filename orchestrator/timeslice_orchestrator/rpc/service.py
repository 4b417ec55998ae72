"""What jobs and people call."""

# ruff: noqa: N802 - methods are named by the service

from __future__ import annotations

import asyncio
from typing import Any, TypeAlias

import grpc.aio
from timeslice_api.names import checked_name
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb

from timeslice_orchestrator.core.effects import (
    Granted,
    LeasesChecked,
    LeasesEnded,
    QuarantineEnded,
    WithdrawAccepted,
    YieldAccepted,
)
from timeslice_orchestrator.engine import Engine
from timeslice_orchestrator.rpc import answers, requests

_WATCH_PAUSE_S = 0.05  # at least, between two states of a group; what changes meanwhile is told in one
_WATCH_SHARE = 0.1  # of the loop's time at most, for one watcher: a group with thousands of waiters is much to tell

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # in quotes: at run time it takes no parameters


class OrchestratorService:
    """Servicer of `Orchestrator`. Errors are raised as `timeslice_api.errors`; `calls` makes them statuses."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def Acquire(self, request: pb.AcquireRequest, context: _Context) -> pb.AcquireResponse:
        """A lease, or the place in the queue when the wait is over."""
        event, wait_s = requests.acquire(request), requests.wait_s(request)
        outcome = await self._engine.acquire(event, wait_s)
        if isinstance(outcome, Granted):
            return answers.granted(outcome)
        return answers.waiting(outcome)

    async def Yield(self, request: pb.YieldRequest, context: _Context) -> pb.YieldResponse:
        """Gives a lease back."""
        accepted = await self._engine.do(requests.yielded(request), YieldAccepted)
        return pb.YieldResponse(waiting=accepted.waiting, already_yielded=accepted.already_yielded)

    async def KeepAlive(self, request: pb.KeepAliveRequest, context: _Context) -> pb.KeepAliveResponse:
        """Renews leases."""
        checked = self._engine.renew(requests.renewed(request), LeasesChecked)
        return pb.KeepAliveResponse(lost_lease_ids=checked.lost, wanted_lease_ids=checked.wanted)

    async def Withdraw(self, request: pb.WithdrawRequest, context: _Context) -> pb.WithdrawResponse:
        """Takes a request back."""
        accepted = await self._engine.do(requests.withdrawn(request), WithdrawAccepted)
        return pb.WithdrawResponse(withdrawn=accepted.withdrawn)

    async def ListGroups(self, request: pb.ListGroupsRequest, context: _Context) -> pb.ListGroupsResponse:
        """All groups."""
        return pb.ListGroupsResponse(groups=[answers.group(view) for view in self._engine.groups()])

    async def GetGroup(self, request: pb.GetGroupRequest, context: _Context) -> pb.Group:
        """One group."""
        return answers.group(self._engine.view(checked_name(request.group_id, "group_id")))

    async def WatchGroup(self, request: pb.WatchGroupRequest, context: _Context) -> None:
        """The group now and after each change, until the caller leaves."""
        group_id = checked_name(request.group_id, "group_id")
        clock = asyncio.get_running_loop().time
        with self._engine.watching(group_id) as changed:
            while True:
                changed.clear()
                started = clock()
                state = answers.group(self._engine.view(group_id))
                pause_s = max(_WATCH_PAUSE_S, (clock() - started) / _WATCH_SHARE)
                await context.write(state)
                await asyncio.sleep(pause_s)
                await changed.wait()

    async def ForceRelease(self, request: pb.ForceReleaseRequest, context: _Context) -> pb.ForceReleaseResponse:
        """Takes leases away."""
        ended = await self._engine.do_all(requests.force_released(request), LeasesEnded)
        return pb.ForceReleaseResponse(lease_ids=[lease_id for effect in ended for lease_id in effect.lease_ids])

    async def Drain(self, request: pb.DrainRequest, context: _Context) -> pb.DrainResponse:
        """Stops further grants in a group."""
        await self._engine.do_all(requests.drained(request), object)
        return pb.DrainResponse()

    async def Resume(self, request: pb.ResumeRequest, context: _Context) -> pb.ResumeResponse:
        """Ends a drain and what quarantine it can."""
        ended = await self._engine.do_all(requests.resumed(request), QuarantineEnded)
        return pb.ResumeResponse(jobs=sorted({member.job_id for effect in ended for member in effect.members}))
