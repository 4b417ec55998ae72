"""A small real gRPC orchestrator with a script: it knows groups by name only, parks nothing, and fails when told to."""
# ruff: noqa: N802 - the names are those of the protocol

from __future__ import annotations

import asyncio
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from timeslice_api import status
from timeslice_api.errors import LeaseLost, NotHolder, RequestEnded, TimesliceError
from timeslice_api.v1alpha1 import orchestrator_pb2 as pb
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc, types_pb2


@dataclass
class Request:
    request_id: str
    job_id: str
    groups: frozenset[str]
    began: float
    lease_id: str = ""
    token: int = 0


@dataclass
class State:
    """What survives a restart."""

    waiting: list[Request] = field(default_factory=list)
    granted: dict[str, Request] = field(default_factory=dict)  # by lease id
    ended: set[str] = field(default_factory=set)  # request ids
    lost: set[str] = field(default_factory=set)  # lease ids
    yielded: list[str] = field(default_factory=list)  # lease ids
    token: int = 0


Fault = TimesliceError | grpc.StatusCode | Callable[[], Any]


class Service(orchestrator_pb2_grpc.OrchestratorServicer):
    def __init__(self, fake: FakeOrchestrator) -> None:
        self.fake = fake
        self.state = fake.state
        self.changed = asyncio.Condition()

    async def _enter(self, method: str, request: Any, context: Any) -> None:
        self.fake.calls.append((method, request))
        if self.fake.faults[method]:
            await self._raise(self.fake.faults[method].popleft(), context)

    async def _raise(self, fault: Fault, context: Any) -> None:
        if isinstance(fault, TimesliceError):
            await context.abort(*status.of(fault))
        elif isinstance(fault, grpc.StatusCode):
            await context.abort(fault, "as the script says")
        else:
            await fault()

    async def Acquire(self, request: pb.AcquireRequest, context: Any) -> pb.AcquireResponse:
        await self._enter("Acquire", request, context)
        if request.group_id in self.fake.refused:
            await self._raise(self.fake.refused[request.group_id], context)
        if request.request_id in self.state.ended:
            await self._raise(RequestEnded("that request has ended"), context)
        found = self._find(request)
        try:
            async with self.changed:
                self._serve()
                try:
                    async with asyncio.timeout(max(request.wait_s, 0.001)):
                        await self.changed.wait_for(lambda: found.lease_id or request.request_id in self.state.ended)
                except TimeoutError:
                    return self._waiting(found)
        except asyncio.CancelledError:  # the client is gone
            if found in self.state.waiting and not self.fake.stopping:
                self.state.waiting.remove(found)
            raise
        if not found.lease_id:
            await self._raise(RequestEnded("that request has ended"), context)
        if self.fake.lose_replies:
            self.fake.lose_replies -= 1
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the reply is lost")
        return self._granted(found)

    async def Yield(self, request: pb.YieldRequest, context: Any) -> pb.YieldResponse:
        await self._enter("Yield", request, context)
        async with self.changed:
            held = self.state.granted.get(request.lease_id)
            if request.lease_id in self.state.lost:
                await self._raise(LeaseLost("that lease was taken away"), context)
            if held is not None and held.job_id != request.job_id:
                await self._raise(NotHolder("that lease is another job's"), context)
            self.state.granted.pop(request.lease_id, None)
            self.state.yielded.append(request.lease_id)
            if held is not None:
                self.state.ended.add(held.request_id)
            self._serve()
        return pb.YieldResponse(waiting=len(self.state.waiting), already_yielded=held is None)

    async def KeepAlive(self, request: pb.KeepAliveRequest, context: Any) -> pb.KeepAliveResponse:
        await self._enter("KeepAlive", request, context)
        lost = [lease for lease in request.lease_ids if lease not in self.state.granted]
        wanted = [lease for lease in request.lease_ids if lease not in lost and self._wanted(lease)]
        return pb.KeepAliveResponse(lost_lease_ids=lost, wanted_lease_ids=wanted)

    async def Withdraw(self, request: pb.WithdrawRequest, context: Any) -> pb.WithdrawResponse:
        await self._enter("Withdraw", request, context)
        async with self.changed:
            known = [r for r in self.state.waiting if r.request_id == request.request_id]
            held = [r for r in self.state.granted.values() if r.request_id == request.request_id]
            for waiter in known:
                self.state.waiting.remove(waiter)
            for holder in held:
                del self.state.granted[holder.lease_id]
            self.state.ended.add(request.request_id)
            self._serve()
        return pb.WithdrawResponse(withdrawn=bool(known or held))

    async def ListGroups(self, request: pb.ListGroupsRequest, context: Any) -> pb.ListGroupsResponse:
        await self._enter("ListGroups", request, context)
        return pb.ListGroupsResponse(groups=[self._group(name) for name in sorted(self.fake.groups)])

    async def GetGroup(self, request: pb.GetGroupRequest, context: Any) -> pb.Group:
        await self._enter("GetGroup", request, context)
        return self._group(request.group_id)

    def _find(self, request: pb.AcquireRequest) -> Request:
        for known in [*self.state.waiting, *self.state.granted.values()]:
            if known.request_id == request.request_id:
                return known
        groups = frozenset(request.group_ids or [request.group_id])
        new = Request(request.request_id, request.job_id, groups, time.monotonic())
        self.state.waiting.append(new)
        return new

    def _serve(self) -> None:
        claimed: set[str] = set()
        for request in list(self.state.waiting):
            holders = [held for held in self.state.granted.values() if held.groups & request.groups]
            own = any(held.job_id == request.job_id and held.groups >= request.groups for held in holders)
            if own or (not holders and not claimed & request.groups):
                self.state.token += 1
                request.token, request.lease_id = self.state.token, f"lease-{self.state.token}"
                self.state.waiting.remove(request)
                self.state.granted[request.lease_id] = request
            else:
                claimed |= request.groups
        self.changed.notify_all()

    def _granted(self, found: Request) -> pb.AcquireResponse:
        lease = types_pb2.Lease(
            lease_id=found.lease_id,
            job_id=found.job_id,
            group_ids=sorted(found.groups),
            fencing_token=found.token,
            ttl_s=self.fake.ttl_s,
        )
        return pb.AcquireResponse(lease=lease, waited_s=time.monotonic() - found.began, restored=True)

    def _waiting(self, found: Request) -> pb.AcquireResponse:
        holder = next((held for held in self.state.granted.values() if held.groups & found.groups), None)
        waiting = pb.Waiting(
            position=self.state.waiting.index(found) + 1,
            holder_job_id=holder.job_id if holder else "",
            held_s=time.monotonic() - holder.began if holder else 0.0,
            reason=f"held by {holder.job_id}" if holder else "",
        )
        return pb.AcquireResponse(waiting=waiting)

    def _wanted(self, lease_id: str) -> bool:
        held = self.state.granted[lease_id]
        return any(waiter.groups & held.groups and waiter.job_id != held.job_id for waiter in self.state.waiting)

    def _group(self, name: str) -> pb.Group:
        group = pb.Group(group_id=name)
        for held in self.state.granted.values():
            if name in held.groups:
                group.holders.add(job_id=held.job_id, leases=1, fencing_token=held.token)
        for position, waiter in enumerate((w for w in self.state.waiting if name in w.groups), 1):
            group.waiters.add(job_id=waiter.job_id, request_id=waiter.request_id, position=position)
        return group


class FakeOrchestrator:
    """Runs in a thread of its own, so that sync clients, async clients and other processes can be tested with it.

    Attributes:
        calls: (method, request) of every call, in order.
        faults: per method, what the next calls meet: an error, a status code, or a coroutine function to run first.
        refused: groups that nobody gets.
        lose_replies: so many grants are made and their replies lost.
    """

    def __init__(self, socket: Path, *, ttl_s: float = 30.0) -> None:
        self.socket, self.ttl_s = socket, ttl_s
        self.address = f"unix://{socket}"
        self.state = State()
        self.calls: list[tuple[str, Any]] = []
        self.faults: defaultdict[str, deque[Fault]] = defaultdict(deque)
        self.refused: dict[str, TimesliceError] = {}
        self.lose_replies = 0
        self.groups = {"g"}
        self.stopping = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fake-orchestrator", daemon=True)
        self._thread.start()
        self.service: Service

    def start(self) -> None:
        self.stopping = False
        self._run(self._start())

    def stop(self) -> None:
        """Stops the server as if it crashed; its state stays for the next start."""
        self.stopping = True
        self._run(self._server.stop(None))

    def close(self) -> None:
        if not self.stopping:
            self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def lose(self, job_id: str) -> None:
        """Takes a job's leases away, as an expiry or an admin does."""
        self._run(self._lose(job_id))

    def methods(self, name: str) -> list[Any]:
        return [request for method, request in self.calls if method == name]

    @property
    def holders(self) -> list[str]:
        return sorted(held.job_id for held in list(self.state.granted.values()))

    @property
    def waiters(self) -> list[str]:
        return [waiter.job_id for waiter in list(self.state.waiting)]

    async def _start(self) -> None:
        self._server = grpc.aio.server(options=[("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000)])
        self.service = Service(self)
        orchestrator_pb2_grpc.add_OrchestratorServicer_to_server(self.service, self._server)  # type: ignore[no-untyped-call]
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def _lose(self, job_id: str) -> None:
        async with self.service.changed:
            for lease_id, held in list(self.state.granted.items()):
                if held.job_id == job_id:
                    del self.state.granted[lease_id]
                    self.state.lost.add(lease_id)
                    self.state.ended.add(held.request_id)
            self.service._serve()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(10)
