"""The raw calls to the orchestrator, for load: grpc.aio stubs without the product's client around them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import grpc
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc
from timeslice_api.v1alpha1.types_pb2 import Lease

if TYPE_CHECKING:
    from timeslice_api.v1alpha1.orchestrator_pb2_grpc import OrchestratorAsyncStub

CALL_LIMIT_S = 40.0  # more than the server waits in one Acquire
WAIT_S = 30.0


def connect(target: str) -> grpc.aio.Channel:
    """A connection of its own, not shared with other channels of this process."""
    return grpc.aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])


class Caller:
    """One job's calls for one group.

    All raise grpc.aio.AioRpcError when the orchestrator refuses or does not answer.
    """

    def __init__(self, channel: grpc.aio.Channel, group_id: str, job_id: str) -> None:
        self._stub = cast("OrchestratorAsyncStub", orchestrator_pb2_grpc.OrchestratorStub(channel))
        self.group_id = group_id
        self.job_id = job_id

    async def acquire(self, request_id: str = "", *, first_wait_s: float = WAIT_S) -> Lease:
        """Asks until it is granted; the first call waits at most `first_wait_s` seconds, the others `WAIT_S`."""
        request = pb.AcquireRequest(
            request_id=request_id or str(uuid.uuid4()), job_id=self.job_id, group_id=self.group_id, wait_s=first_wait_s
        )
        while True:
            response = await self._stub.Acquire(request, timeout=CALL_LIMIT_S)
            if response.HasField("lease"):
                return response.lease
            request.wait_s = WAIT_S

    async def yield_(self, lease: Lease) -> int:
        """Gives the lease back; returns how many requests of other jobs wait."""
        request = pb.YieldRequest(lease_id=lease.lease_id, job_id=self.job_id)
        return (await self._stub.Yield(request, timeout=CALL_LIMIT_S)).waiting

    async def renew(self, lease: Lease) -> None:
        """Keeps the lease alive for another time to live."""
        request = pb.KeepAliveRequest(job_id=self.job_id, lease_ids=[lease.lease_id])
        await self._stub.KeepAlive(request, timeout=CALL_LIMIT_S)

    async def withdraw(self, request_id: str) -> bool:
        """Takes a request back; False when it had ended before."""
        request = pb.WithdrawRequest(request_id=request_id, job_id=self.job_id)
        return (await self._stub.Withdraw(request, timeout=CALL_LIMIT_S)).withdrawn

    async def waiters(self) -> int:
        """How many requests wait for the group."""
        return len((await self.group()).waiters)

    async def groups(self) -> Sequence[pb.Group]:
        """All groups as they are now."""
        return (await self._stub.ListGroups(pb.ListGroupsRequest(), timeout=CALL_LIMIT_S)).groups

    async def group(self) -> pb.Group:
        """The group as it is now."""
        return await self._stub.GetGroup(pb.GetGroupRequest(group_id=self.group_id), timeout=CALL_LIMIT_S)
