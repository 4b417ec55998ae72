"""A node for tests: says hello, and obeys commands, or not, on parts that exist only in its head."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Self, cast

import grpc.aio
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import agent_link_pb2_grpc, types_pb2

if TYPE_CHECKING:
    from timeslice_api.v1alpha1.agent_link_pb2_grpc import AgentLinkAsyncStub

RUNNING = types_pb2.PART_STATE_RUNNING
LOCKED = types_pb2.PART_STATE_LOCKED
PARKED = types_pb2.PART_STATE_PARKED
EMPTY = types_pb2.PART_STATE_EMPTY

Key = tuple[str, str]  # job, group


def part(job: str, group: str, *devices: str, state: types_pb2.PartState.ValueType = EMPTY) -> types_pb2.Part:
    """A part as a node reports it."""
    return types_pb2.Part(
        member=types_pb2.MemberKey(job_id=job, group_id=group),
        device_ids=devices,
        state=state,
        resident=state in (RUNNING, LOCKED),
        bytes=1000,
        processes=1,
    )


def copy(given: types_pb2.Part) -> types_pb2.Part:
    """A part of its own, which commands may change."""
    made = types_pb2.Part()
    made.CopyFrom(given)
    return made


def by_group(message: pb.Welcome | pb.NodeGroups) -> dict[str, tuple[str, ...]]:
    """The devices of each group that the orchestrator tells of."""
    return {group.group_id: tuple(group.device_ids) for group in message.groups}


class ScriptedNode:
    """One node.

    Args:
        channel: to the orchestrator.
        groups: the groups that it declares, with their devices; its devices are all of these.
        epoch, token: the newest that it ever saw.
        obeys: whether it answers commands by itself.
        metadata: of its call, such as a token.
    """

    def __init__(
        self,
        channel: grpc.aio.Channel,
        name: str,
        groups: dict[str, tuple[str, ...]],
        *,
        parts: Iterable[types_pb2.Part] = (),
        devices: Iterable[str] = (),
        epoch: int = 0,
        token: int = 0,
        obeys: bool = True,
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> None:
        self._metadata = metadata
        self.name = name
        self.groups = groups
        self.devices = tuple(devices) or tuple(device for mine in groups.values() for device in mine)
        self.parts: dict[Key, types_pb2.Part] = {}
        for given in parts:
            self.parts[given.member.job_id, given.member.group_id] = copy(given)
        self.highest_epoch = epoch
        self.highest_token = token
        self.obeys = obeys
        self.welcome = pb.Welcome()
        self.told: asyncio.Queue[dict[str, tuple[str, ...]]] = asyncio.Queue()
        self.commands: asyncio.Queue[pb.Command] = asyncio.Queue()
        # the generated type for asyncio exists for type checkers only
        self._stub = cast("AgentLinkAsyncStub", agent_link_pb2_grpc.AgentLinkStub(channel))
        self._call: grpc.aio.StreamStreamCall[pb.AgentMessage, pb.OrchestratorMessage] | None = None
        self._reading: asyncio.Task[None] | None = None

    def hello(self) -> pb.Hello:
        """What it says first."""
        return pb.Hello(
            node=self.name,
            boot_id="boot-1",
            devices=[types_pb2.Device(device_id=device, memory_bytes=1 << 30, healthy=True) for device in self.devices],
            parts=self.parts.values(),
            highest_epoch=self.highest_epoch,
            highest_token=self.highest_token,
            groups=[pb.NodeGroup(group_id=group, device_ids=devices) for group, devices in self.groups.items()],
        )

    async def connect(self) -> Self:
        """Dials in and waits for the welcome."""
        self._call = self._stub.Connect(metadata=self._metadata)
        await self.say(pb.AgentMessage(hello=self.hello()))
        first = await asyncio.wait_for(self._call.read(), 5)
        if first is grpc.aio.EOF:
            await self.ended()
        assert isinstance(first, pb.OrchestratorMessage)
        self.welcome = first.welcome
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *_: object) -> None:
        await self.cut()

    async def say(self, message: pb.AgentMessage) -> None:
        """Sends a message."""
        assert self._call
        try:
            await self._call.write(message)
        except asyncio.InvalidStateError:  # the other side has ended the stream; `ended` says why
            pass

    async def joins(self, joined: types_pb2.Part) -> None:
        """Processes of a job have registered."""
        self.parts[joined.member.job_id, joined.member.group_id] = copy(joined)
        await self.say(pb.AgentMessage(report=pb.Report(parts=[joined])))

    async def declares(self, groups: dict[str, tuple[str, ...]]) -> None:
        """Its groups are others now."""
        self.groups = groups
        messages = [pb.NodeGroup(group_id=group, device_ids=devices) for group, devices in groups.items()]
        await self.say(pb.AgentMessage(groups=pb.NodeGroups(groups=messages)))

    async def answer(self, command: pb.Command) -> None:
        """Obeys a command and reports it."""
        self.highest_token = max(self.highest_token, command.fencing_token)
        named = []
        for target in command.targets:
            mine = self.parts[target.member.job_id, target.member.group_id]
            if mine.state != EMPTY and target.state != types_pb2.PART_STATE_UNSPECIFIED:
                mine.state = target.state
                mine.resident = target.state != PARKED
            named.append(mine)
        result = pb.Result(command_id=command.command_id, epoch=command.epoch, parts=named)
        await self.say(pb.AgentMessage(result=result))

    async def cut(self) -> None:
        """Breaks the link."""
        if self._call:
            self._call.cancel()
        if self._reading:
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None

    async def ended(self) -> None:
        """Waits for the other side to end the stream; raises the AioRpcError that says why."""
        assert self._call
        async with asyncio.timeout(5):
            if self._reading:
                await self._reading
            code, details = await self._call.code(), await self._call.details()
            first, last = await self._call.initial_metadata(), await self._call.trailing_metadata()
        raise grpc.aio.AioRpcError(code, first, last, details)

    async def _read(self) -> None:
        assert self._call
        while True:
            try:
                message = await self._call.read()
            except grpc.aio.AioRpcError:
                return
            if not isinstance(message, pb.OrchestratorMessage):
                return
            if message.HasField("groups"):
                self.told.put_nowait(by_group(message.groups))
                continue
            self.highest_epoch = max(self.highest_epoch, message.command.epoch)
            if self.obeys:
                await self.answer(message.command)
            self.commands.put_nowait(message.command)
