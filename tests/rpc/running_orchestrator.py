"""An orchestrator that tests start, stop and start again, and what clients say to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import grpc.aio
from timeslice_api import status
from timeslice_api.errors import TimesliceError
from timeslice_api.tls import TlsFiles, channel_credentials
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc, types_pb2
from timeslice_orchestrator.config import OrchestratorConfig
from timeslice_orchestrator.core.model import Settings
from timeslice_orchestrator.server import Orchestrator

if TYPE_CHECKING:
    from timeslice_api.v1alpha1.orchestrator_pb2_grpc import OrchestratorAsyncStub

_T = TypeVar("_T")

# Peers of a socket reconnect at once rather than after gRPC's second of backoff.
CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 100),
)


def open_channel(address: str, tls: TlsFiles | None = None) -> grpc.aio.Channel:
    """A channel of its own connection."""
    options = [*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    credentials = channel_credentials(address, tls or TlsFiles())
    if credentials is None:
        return grpc.aio.insecure_channel(address, options=options)
    return grpc.aio.secure_channel(address, credentials, options=options)


def stub_of(channel: grpc.aio.Channel) -> OrchestratorAsyncStub:
    """The client's side of the service; its generated type exists for type checkers only."""
    return cast("OrchestratorAsyncStub", orchestrator_pb2_grpc.OrchestratorStub(channel))


class Running:
    """The orchestrator, and a client's channel that outlives its restarts."""

    def __init__(self, folder: Path, settings: Settings | None = None, **config: Any) -> None:
        self.address = f"unix://{folder}/o.sock"
        fields = {"state_dir": folder / "state", "listen": (self.address,), "settings": settings or Settings()}
        self.config = OrchestratorConfig(**{**fields, **config})
        self.server = Orchestrator(self.config)
        self.channel = open_channel(self.address)
        self.stub = stub_of(self.channel)

    async def start(self) -> None:
        """Starts it, for the first time or again."""
        self.server = Orchestrator(self.config)
        await self.server.start()

    async def stop(self) -> None:
        """Stops it gracefully."""
        await self.server.stop()

    async def close(self) -> None:
        """Ends everything."""
        await self.channel.close()
        await self.stop()

    async def acquire(self, request_id: str, job: str, group: str = "g", wait_s: float = 5) -> pb.AcquireResponse:
        """One Acquire; errors are those of timeslice_api."""
        request = pb.AcquireRequest(request_id=request_id, job_id=job, group_id=group, wait_s=wait_s, holder="a test")
        return await self.call(self.stub.Acquire(request))

    async def lease(self, request_id: str, job: str, group: str = "g", wait_s: float = 5) -> types_pb2.Lease:
        """An Acquire that must be granted."""
        answer = await self.acquire(request_id, job, group, wait_s)
        assert answer.HasField("lease"), answer
        return answer.lease

    async def release(self, lease: types_pb2.Lease) -> pb.YieldResponse:
        """Yields a lease."""
        return await self.call(self.stub.Yield(pb.YieldRequest(lease_id=lease.lease_id, job_id=lease.job_id)))

    async def group(self, group: str = "g") -> pb.Group:
        """A group as people see it."""
        return await self.call(self.stub.GetGroup(pb.GetGroupRequest(group_id=group)))

    async def call(self, call: Awaitable[_T]) -> _T:
        """The answer of a call, which must come in 10 s.

        Raises:
            TimesliceError: as the client library would.
        """
        try:
            return await asyncio.wait_for(call, 10)
        except grpc.aio.AioRpcError as error:
            raise status.from_rpc(error) from error

    async def until(self, holds: Callable[[pb.Group], bool], group: str = "g", within_s: float = 5) -> pb.Group:
        """Watches a group until something holds."""
        call = self.stub.WatchGroup(pb.WatchGroupRequest(group_id=group))
        try:
            async with asyncio.timeout(within_s):
                async for seen in call:
                    if holds(seen):
                        return seen
        finally:
            call.cancel()
        raise AssertionError("the watch ended")


def error_of(error: grpc.aio.AioRpcError) -> TimesliceError:
    """What a client makes of a failed call."""
    return status.from_rpc(error)
