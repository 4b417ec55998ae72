"""The `SnapshotAgent` service on the node's socket: registration, and snapshots for those who drive the node
themselves.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeAlias, TypeVar

import grpc.aio
from timeslice_api.errors import JobNotFound, OperationFailed, OrchestratorInCharge, TimesliceError
from timeslice_api.names import checked_name
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc, types_pb2

from timeslice_driver import wire
from timeslice_driver.commands import Commands
from timeslice_driver.groups_in_force import GroupsInForce
from timeslice_driver.parts import Member, Part, PartState
from timeslice_driver.processes import ProcessId
from timeslice_driver.refusals import refuse
from timeslice_driver.registration import Registration
from timeslice_driver.table import Table
from timeslice_driver.watched_jobs import watched

T = TypeVar("T")
_LONGEST_LOCK_S = 600.0  # whatever a request asks for: others wait for the devices meanwhile
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class SnapshotAgent(snapshot_agent_pb2_grpc.SnapshotAgentServicer):
    """See snapshot_agent.proto.

    Args:
        devices: the node's devices as messages, as they are now.
        orchestrated: an orchestrator decides what is on the devices.
        process_name: what the orchestrator is told a process is called.
    """

    def __init__(
        self,
        table: Table,
        groups: GroupsInForce,
        *,
        commands: Commands,
        registration: Registration,
        devices: Callable[[], list[types_pb2.Device]],
        orchestrated: bool,
        process_name: Callable[[ProcessId], str],
    ) -> None:
        self._process_name = process_name
        self._table = table
        self._groups = groups
        self._commands = commands
        self._registration = registration
        self._devices = devices
        self._orchestrated = orchestrated

    async def Register(self, request: pb.RegisterRequest, context: _Context) -> pb.RegisterResponse:  # noqa: N802
        """See snapshot_agent.proto."""
        part = await _answer(
            context,
            self._registration.register(
                request.job_id, request.group_id, request.pid, device_ids=tuple(request.device_ids)
            ),
        )
        names = [self._process_name(root) for root in part.roots if root.pid == request.pid]
        return pb.RegisterResponse(
            part=wire.to_part(part), device_ids=part.device_ids, process=names[0] if names else ""
        )

    async def Unregister(self, request: pb.UnregisterRequest, context: _Context) -> pb.UnregisterResponse:  # noqa: N802
        """See snapshot_agent.proto."""
        await _answer(context, self._registration.unregister(request.job_id, request.group_id, request.pid))
        return pb.UnregisterResponse()

    async def ListJobs(self, request: pb.ListJobsRequest, context: _Context) -> pb.ListJobsResponse:  # noqa: N802
        """See snapshot_agent.proto."""
        return self._jobs()

    async def WatchJobs(  # noqa: N802
        self, request: pb.WatchJobsRequest, context: _Context
    ) -> AsyncIterator[pb.ListJobsResponse]:
        """See snapshot_agent.proto."""
        async with aclosing(watched(self._table, self._jobs)) as listed:
            async for jobs in listed:
                yield jobs

    async def Snapshot(self, request: pb.SnapshotRequest, context: _Context) -> pb.SnapshotResponse:  # noqa: N802
        """See snapshot_agent.proto."""
        moving = self._move(request.job_id, request.group_id, PartState.PARKED, request.lock_timeout_s)
        return pb.SnapshotResponse(parts=wire.to_parts(await _answer(context, moving)))

    async def Restore(self, request: pb.RestoreRequest, context: _Context) -> pb.RestoreResponse:  # noqa: N802
        """See snapshot_agent.proto."""
        moving = self._move(request.job_id, request.group_id, PartState.RUNNING, 0.0)
        return pb.RestoreResponse(parts=wire.to_parts(await _answer(context, moving)))

    def _jobs(self) -> pb.ListJobsResponse:
        return pb.ListJobsResponse(parts=wire.to_parts(self._table.parts()), devices=self._devices())

    async def _move(self, job_id: str, group_id: str, target: PartState, lock_timeout_s: float) -> tuple[Part, ...]:
        if self._orchestrated:
            raise OrchestratorInCharge("this node is driven by an orchestrator", job_id=job_id, group_id=group_id)
        members = self._members(checked_name(job_id, "job_id"), group_id)
        within_s = min(max(0.0, lock_timeout_s), _LONGEST_LOCK_S)
        parts = await self._commands.bring(dict.fromkeys(members, target), lock_timeout_s=within_s)
        for part in parts:
            if part.fault:
                raise _failed(part)
        return parts

    def _members(self, job_id: str, group_id: str) -> list[Member]:
        if group_id:
            self._groups.now.covered(group_id)
        parts = [part.member for part in self._table.of_job(job_id) if group_id in {"", part.member.group_id}]
        if not parts:
            known = ", ".join(sorted({part.member.job_id for part in self._table.parts()})) or "none"
            where = f" in group {group_id}" if group_id else ""
            raise JobNotFound(
                f"no job {job_id!r}{where} on this node; known: {known}", job_id=job_id, group_id=group_id
            )
        return parts


def _failed(part: Part) -> OperationFailed:
    assert part.fault
    fault, member = part.fault, part.member
    error = OperationFailed(
        fault.message,
        reason=fault.reason,
        hint=fault.hint,
        job_id=member.job_id,
        group_id=member.group_id,
    )
    error.retryable = fault.retryable
    return error


async def _answer(context: _Context, work: Awaitable[T]) -> T:
    try:
        return await work
    except TimesliceError as error:
        await refuse(context, error)
