"""The other end of a node's stream: takes what the node says, and sends what a test wants."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc.aio
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import agent_link_pb2_grpc, types_pb2

_PATIENCE_S = 10.0
STATES = {
    "RUNNING": types_pb2.PART_STATE_RUNNING,
    "LOCKED": types_pb2.PART_STATE_LOCKED,
    "PARKED": types_pb2.PART_STATE_PARKED,
    "as it is": types_pb2.PART_STATE_UNSPECIFIED,
}


class ScriptedOrchestrator(agent_link_pb2_grpc.AgentLinkServicer):
    """Serves AgentLink. Hellos, reports and results come in queues."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix://{path}"
        self.epoch = 1
        self.hellos: asyncio.Queue[pb.Hello] = asyncio.Queue()
        self.reports: asyncio.Queue[pb.Report] = asyncio.Queue()
        self.results: asyncio.Queue[pb.Result] = asyncio.Queue()
        self.declared: asyncio.Queue[dict[str, list[str]]] = asyncio.Queue()
        self.heard: list[pb.AgentMessage] = []  # everything but hellos, in its order
        self.welcoming = True
        self.groups: dict[str, list[str]] | None = None  # what it tells; None: what the node declares
        self._ids = itertools.count(1)
        self._outbox: asyncio.Queue[pb.OrchestratorMessage | None] = asyncio.Queue()
        self._server: grpc.aio.Server | None = None

    async def start(self) -> None:
        self._server = grpc.aio.server()
        agent_link_pb2_grpc.add_AgentLinkServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        await self._server.start()

    async def stop(self) -> None:
        if self._server:
            await self._server.stop(0)
            self._server = None

    async def Connect(self, messages: AsyncIterator[pb.AgentMessage], context: Any) -> AsyncIterator[Any]:  # noqa: N802
        first = await anext(messages)
        assert first.WhichOneof("message") == "hello"
        self._outbox = outbox = asyncio.Queue()
        self.hellos.put_nowait(first.hello)
        if not self.welcoming:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "not now")
        groups = first.hello.groups if self.groups is None else _messages(self.groups)
        yield pb.OrchestratorMessage(welcome=pb.Welcome(epoch=self.epoch, groups=groups))
        reading = asyncio.create_task(self._read(messages))
        try:
            while (message := await outbox.get()) is not None:
                yield message
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, messages: AsyncIterator[pb.AgentMessage]) -> None:
        async for message in messages:
            self.heard.append(message)
            match message.WhichOneof("message"):
                case "result":
                    self.results.put_nowait(message.result)
                case "groups":
                    self.declared.put_nowait({g.group_id: list(g.device_ids) for g in message.groups.groups})
                case _:
                    self.reports.put_nowait(message.report)

    def drop(self) -> None:
        """Ends the stream, as a restart does."""
        self._outbox.put_nowait(None)

    def tell_groups(self, groups: dict[str, list[str]]) -> None:
        """As after a change of the groups file."""
        self._outbox.put_nowait(pb.OrchestratorMessage(groups=pb.NodeGroups(groups=_messages(groups))))

    def send(
        self,
        targets: dict[tuple[str, str], str],
        *,
        token: int = 1,
        epoch: int = 0,
        command_id: int = 0,
        lock_s: float = 2,
    ) -> int:
        """Sends a command; returns its id."""
        number = command_id or next(self._ids)
        wanted = [
            pb.Target(member=types_pb2.MemberKey(job_id=job_id, group_id=group_id), state=STATES[state])
            for (job_id, group_id), state in targets.items()
        ]
        command = pb.Command(
            command_id=number,
            epoch=epoch or self.epoch,
            fencing_token=token,
            targets=wanted,
            lock_timeout_s=lock_s,
        )
        self._outbox.put_nowait(pb.OrchestratorMessage(command=command))
        return number

    async def command(self, targets: dict[tuple[str, str], str], **fields: Any) -> pb.Result:
        """Sends a command and waits for its result."""
        number = self.send(targets, **fields)
        result = await asyncio.wait_for(self.results.get(), _PATIENCE_S)
        assert result.command_id == number
        return result

    async def hello(self) -> pb.Hello:
        return await asyncio.wait_for(self.hellos.get(), _PATIENCE_S)

    async def report(self) -> pb.Report:
        return await asyncio.wait_for(self.reports.get(), _PATIENCE_S)

    async def groups_declared(self) -> dict[str, list[str]]:
        return await asyncio.wait_for(self.declared.get(), _PATIENCE_S)

    async def result(self) -> pb.Result:
        return await asyncio.wait_for(self.results.get(), _PATIENCE_S)


def _messages(groups: dict[str, list[str]]) -> list[pb.NodeGroup]:
    return [pb.NodeGroup(group_id=group_id, device_ids=ids) for group_id, ids in groups.items()]
