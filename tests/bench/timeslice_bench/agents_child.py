"""Agents that do no work, all in one process: one AgentLink stream per node, over a connection of its own.

Every command is answered at once, or after the time that its group's nodes take, with the parts in the states that it
asked for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import grpc
from timeslice_api.tls import TlsFiles, channel_credentials
from timeslice_api.v1alpha1 import agent_link_pb2, agent_link_pb2_grpc, types_pb2

from timeslice_bench.layout import Group, Layout
from timeslice_bench.lifeline import say, until_let_go

if TYPE_CHECKING:
    from timeslice_api.v1alpha1.agent_link_pb2_grpc import AgentLinkAsyncStub

GIB = 1 << 30
WELCOME_LIMIT_S = 20.0
WELCOME_LIMIT_OF_EACH_S = 0.2
_ON_DEVICE = {types_pb2.PART_STATE_RUNNING, types_pb2.PART_STATE_LOCKED}


class IdleAgent:
    """One node: its parts only change their state's name."""

    def __init__(self, node: str, group: Group) -> None:
        self.node = node
        self.device = f"GPU-{node}"
        self.group = group
        self.states = dict.fromkeys(group.jobs, types_pb2.PART_STATE_PARKED)
        self.states[group.jobs[0]] = types_pb2.PART_STATE_RUNNING
        if not group.members:
            self.states.clear()
        self.welcomed = asyncio.Event()

    async def serve(self, channel: grpc.aio.Channel, token: str = "") -> None:
        """Speaks the protocol until the stream ends."""
        stub = cast("AgentLinkAsyncStub", agent_link_pb2_grpc.AgentLinkStub(channel))
        stream = stub.Connect(metadata=(("authorization", f"Bearer {token}"),) if token else ())
        try:
            await stream.write(agent_link_pb2.AgentMessage(hello=self._hello()))
            while isinstance(message := await stream.read(), agent_link_pb2.OrchestratorMessage):
                if message.HasField("command"):
                    await self._take_time()
                    await stream.write(agent_link_pb2.AgentMessage(result=self._obey(message.command)))
                else:
                    self.welcomed.set()
        finally:
            stream.cancel()

    async def _take_time(self) -> None:
        if self.group.answer_s is None:
            await asyncio.Event().wait()  # it hears, and says nothing
        elif self.group.answer_s:
            await asyncio.sleep(self.group.answer_s)

    def _hello(self) -> agent_link_pb2.Hello:
        return agent_link_pb2.Hello(
            node=self.node,
            boot_id="bench",
            devices=[types_pb2.Device(device_id=self.device, memory_bytes=80 * GIB, product_name="idle", healthy=True)],
            parts=[self._part(job) for job in self.states],
            groups=[agent_link_pb2.NodeGroup(group_id=self.group.group_id, device_ids=[self.device])],
        )

    def _obey(self, command: agent_link_pb2.Command) -> agent_link_pb2.Result:
        for target in command.targets:
            self.states[target.member.job_id] = target.state
        parts = [self._part(target.member.job_id) for target in command.targets]
        return agent_link_pb2.Result(command_id=command.command_id, epoch=command.epoch, parts=parts)

    def _part(self, job: str) -> types_pb2.Part:
        state = self.states[job]
        return types_pb2.Part(
            member=types_pb2.MemberKey(job_id=job, group_id=self.group.group_id),
            device_ids=[self.device],
            state=state,
            resident=state in _ON_DEVICE,
            bytes=40 * GIB,
            processes=1,
        )


def _channel(target: str, ca: str, name: str) -> grpc.aio.Channel:
    options: list[tuple[str, int | str]] = [("grpc.use_local_subchannel_pool", 1)]
    credentials = channel_credentials(target, TlsFiles(ca=ca))
    if credentials is None:
        return grpc.aio.insecure_channel(target, options=options)
    return grpc.aio.secure_channel(target, credentials, options=[*options, ("grpc.ssl_target_name_override", name)])


async def main(target: str, layout: Layout, ca: str = "", name: str = "", tokens: str = "") -> None:
    """Runs one agent per node of the layout until the parent lets go; says ready when all are welcome.

    With a `ca` the target's certificate must be of it, and for that name; `tokens` is a file of JSON, by node.
    """
    token_of: dict[str, str] = json.loads(Path(tokens).read_text()) if tokens else {}
    agents = [IdleAgent(node, group) for group in layout.groups for node in group.node_names()]
    channels = [_channel(target, ca, name) for _ in agents]
    streams = [
        asyncio.create_task(agent.serve(channel, token_of.get(agent.node, "")))
        for agent, channel in zip(agents, channels, strict=True)
    ]
    try:
        async with asyncio.timeout(WELCOME_LIMIT_S + WELCOME_LIMIT_OF_EACH_S * len(agents)):
            await asyncio.gather(*(agent.welcomed.wait() for agent in agents))
        say(nodes=len(agents))
        await until_let_go()
    finally:
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in channels))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Layout.from_json(sys.argv[2]), *sys.argv[3:]))
