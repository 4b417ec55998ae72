"""Pods as a node sees them: cgroups with processes in them, and the claims that are prepared for them."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import grpc.aio
from node_world import World
from scripted_orchestrator import ScriptedOrchestrator
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import snapshot_agent_pb2 as pb
from timeslice_api.v1alpha1 import snapshot_agent_pb2_grpc, types_pb2
from timeslice_driver.claim_parts import ClaimParts
from timeslice_driver.claim_sockets import ClaimSockets
from timeslice_driver.claims import PreparedClaim
from timeslice_driver.node import Node


class Pod:
    """A pod's cgroup below `hierarchy`: a folder of the kernel's, or of a test's, which then writes what is in it."""

    def __init__(self, hierarchy: Path, *, layout: str = "kubepods/burstable/pod{uid}") -> None:
        self.uid = str(uuid.uuid4())
        flat = self.uid.replace("-", "_")
        self.folder = hierarchy / layout.format(uid=self.uid, flat=flat)
        self.folder.mkdir(parents=True)

    def put(self, *pids: int, container: str = "main") -> None:
        """Processes are in a container of it."""
        folder = self.folder / container
        folder.mkdir(exist_ok=True)
        for pid in pids:
            with (folder / "cgroup.procs").open("a") as procs:
                procs.write(f"{pid}\n")


class ClaimWorld:
    """A node on Kubernetes, driven by a scripted orchestrator, with claims that a test prepares."""

    def __init__(self, world: World, *, cgroup_root: Path | None = None) -> None:
        self.world = world
        self.folder = world.folder
        self.cgroups = cgroup_root or world.folder / "cgroup"
        if cgroup_root is None:
            self.cgroups.mkdir()
            (self.cgroups / "cgroup.controllers").write_text("memory pids\n")
        self.orchestrator = ScriptedOrchestrator(world.folder / "o.sock")
        self.devices = [device["uuid"] for device in world.emulator.snapshot()["devices"]]
        self.made()

    def made(self) -> None:
        """As a new process would begin, without any claims."""
        self.sockets = ClaimSockets(self.folder / "claims")
        self.claims = ClaimParts(self.sockets)

    async def start(self, **changes: Any) -> Node:
        """Starts the node, and waits until it is linked."""
        if self.orchestrator._server is None:
            await self.orchestrator.start()
        fields = {"cgroup_root": self.cgroups, "orchestrator": self.orchestrator.address, "groups": {}, **changes}
        self.world.node = Node(self.world.config(**fields), claims=self.claims, sockets=self.sockets)
        await self.world.node.start()
        async with asyncio.timeout(10):
            await self.world.node.linked()
        return self.world.node

    async def stop(self) -> None:
        await self.world.stop()
        await self.orchestrator.stop()

    def pod(self, **fields: Any) -> Pod:
        return Pod(self.cgroups, **fields)

    async def prepare(
        self, pod: Pod, job_id: str = "job-a", group_id: str = "trainers", *, devices: tuple[int, ...] = (0,)
    ) -> PreparedClaim:
        """Prepares a claim for a pod, as the kubelet plugin does."""
        uid = str(uuid.uuid4())
        claim = PreparedClaim(
            uid=uid,
            namespace="rl",
            name=f"claim-{uid[:4]}",
            job_id=job_id,
            group_id=group_id,
            device_ids=tuple(self.devices[index] for index in devices),
            pods={pod.uid: "pod"},
        )
        await self.claims.add(claim)
        return claim

    async def parts(self) -> dict[str, types_pb2.Part]:
        """The node's parts by job/group."""
        return await self.world.parts()

    def door(self, claim: PreparedClaim) -> Door:
        return Door(self.folder / "claims" / claim.uid / "agent.sock")


class Door:
    """A claim's socket, as its pods use it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._channel = grpc.aio.insecure_channel(f"unix:{path}", options=[("grpc.use_local_subchannel_pool", 1)])
        self.stub: Any = snapshot_agent_pb2_grpc.SnapshotAgentStub(self._channel)

    async def __aenter__(self) -> Door:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._channel.close()

    async def register(self, job_id: str = "job-a", group_id: str = "trainers", **fields: Any) -> types_pb2.Part:
        request = pb.RegisterRequest(job_id=job_id, group_id=group_id, pid=1, **fields)
        return (await self.ask(self.stub.Register(request))).part

    async def jobs(self) -> pb.ListJobsResponse:
        answer: pb.ListJobsResponse = await self.ask(self.stub.ListJobs(pb.ListJobsRequest()))
        return answer

    async def ask(self, call: Any) -> Any:
        try:
            return await asyncio.wait_for(call, 10)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
