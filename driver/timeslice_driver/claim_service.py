"""The `SnapshotAgent` service as the pods of one claim see it: themselves, and nothing to move.

A pod's process numbers mean nothing here, and a pod could name anybody's; its cgroup tells which processes it has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias

import grpc.aio
from timeslice_api.errors import InvalidRequest, OrchestratorInCharge, TimesliceError, Unavailable
from timeslice_api.names import checked_name
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc, types_pb2

from timeslice_driver import wire
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.discovery import ScrambledListError
from timeslice_driver.inventory import Device, InventoryError
from timeslice_driver.parts import Member, Part
from timeslice_driver.refusals import refuse
from timeslice_driver.survey import Survey
from timeslice_driver.table import Table
from timeslice_driver.watched_jobs import watched

_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


class ClaimAgent(snapshot_agent_pb2_grpc.SnapshotAgentServicer):
    """See snapshot_agent.proto.

    Args:
        uid: of the claim.
        parts: of all claims.
        survey: looks for a claim's processes.
        devices: the node's, as they are now.
        process_name: what the orchestrator is told the process of a part is called that has this number in one of these
            pods; empty when that cannot be told.
    """

    def __init__(
        self,
        uid: str,
        parts: ClaimParts,
        *,
        table: Table,
        survey: Survey,
        devices: Callable[[], tuple[Device, ...]],
        process_name: Callable[[Part, Collection[str], int], Awaitable[str]],
    ) -> None:
        self._uid = uid
        self._parts = parts
        self._table = table
        self._survey = survey
        self._devices = devices
        self._process_name = process_name
        self._looking = asyncio.Lock()  # looks at all claims share one thread: whoever asks often waits for itself

    async def Register(self, request: pb.RegisterRequest, context: _Context) -> pb.RegisterResponse:  # noqa: N802
        """Has the pod's processes looked for. In a group of which its pods have no claim, there is nothing to look for:
        the job's processes there are in other pods, and the answer is a part without devices."""
        try:
            async with self._looking:
                part = await self._registered(request)
                process = await self._process_name(part, self._claim().pods, request.pid)
        except TimesliceError as error:
            await refuse(context, error, claim_uid=self._uid)
        return pb.RegisterResponse(part=wire.to_part(part), device_ids=part.device_ids, process=process)

    async def Unregister(self, request: pb.UnregisterRequest, context: _Context) -> pb.UnregisterResponse:  # noqa: N802
        """Changes nothing: a pod's processes belong to its claims for as long as these are prepared."""
        try:
            self._member(request.job_id, request.group_id)
        except TimesliceError as error:
            await refuse(context, error, claim_uid=self._uid)
        return pb.UnregisterResponse()

    async def ListJobs(self, request: pb.ListJobsRequest, context: _Context) -> pb.ListJobsResponse:  # noqa: N802
        """The parts of the claims that its pods have, and their devices."""
        return self._jobs()

    async def WatchJobs(  # noqa: N802
        self, request: pb.WatchJobsRequest, context: _Context
    ) -> AsyncIterator[pb.ListJobsResponse]:
        """As ListJobs, now and after each change."""
        async with aclosing(watched(self._table, self._jobs)) as listed:
            async for jobs in listed:
                yield jobs

    async def Snapshot(self, request: pb.SnapshotRequest, context: _Context) -> pb.SnapshotResponse:  # noqa: N802
        """Refused."""
        await self._not_here(context, request.job_id)

    async def Restore(self, request: pb.RestoreRequest, context: _Context) -> pb.RestoreResponse:  # noqa: N802
        """Refused."""
        await self._not_here(context, request.job_id)

    async def _not_here(self, context: _Context, job_id: str) -> NoReturn:
        message = "pods do not park or restore: the orchestrator decides what is on the devices"
        hint = "acquire the group when the job needs its devices, and yield it afterwards"
        await refuse(context, OrchestratorInCharge(message, hint=hint, job_id=job_id), claim_uid=self._uid)

    async def _registered(self, request: pb.RegisterRequest) -> Part:
        member = self._member(request.job_id, request.group_id)
        if member not in self._own():
            return Part(member, ())
        self._parts.wake(member)
        part = self._table.get(member) or Part(member, ())
        for device_id in request.device_ids:
            if device_id not in part.device_ids:
                known = ", ".join(part.device_ids)
                raise InvalidRequest(f"device_ids: {device_id!r} is not in the claims of {member}; they have {known}")
        try:
            await self._survey.look([member], thorough=True)
        except (InventoryError, ScrambledListError):  # the watch and every command look again
            pass
        return self._table.get(member) or part

    def _member(self, job_id: str, group_id: str) -> Member:
        member = Member(checked_name(job_id, "job_id"), checked_name(group_id, "group_id"))
        claim = self._claim()
        if job_id != claim.job_id:
            message = f"{claim} is prepared for job {claim.job_id}, so its pods cannot be of job {job_id}"
            raise InvalidRequest(message, hint="leave the job's name to TIMESLICE_JOB_ID", job_id=job_id)
        return member

    def _jobs(self) -> pb.ListJobsResponse:
        own = self._own()
        devices = {device_id for claim in own.values() for device_id in claim.device_ids}
        return pb.ListJobsResponse(
            parts=wire.to_parts(part for member in sorted(own) if (part := self._table.get(member))),
            devices=self._messages(devices),
        )

    def _messages(self, device_ids: set[str]) -> list[types_pb2.Device]:
        return [wire.to_device(device) for device in self._devices() if device.device_id in device_ids]

    def _own(self) -> Mapping[Member, PreparedClaim]:
        """The claims of its job that its pods have, by member."""
        mine = self._claim()
        claims = (each for each in self._parts.claims.values() if each.job_id == mine.job_id)
        return {each.member: each for each in claims if each.uid == self._uid or each.pods.keys() & mine.pods.keys()}

    def _claim(self) -> PreparedClaim:
        claim = self._parts.claims.get(self._uid)
        if claim is None:
            raise Unavailable("this claim is not prepared any more, or not yet", hint="try again in a moment")
        return claim
