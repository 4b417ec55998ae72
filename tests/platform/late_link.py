"""A link between a node and its orchestrator on which words come late: a leader of before is still heard."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import grpc
from timeslice.channel import open_channel
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import agent_link_pb2_grpc


class LateLink(agent_link_pb2_grpc.AgentLinkServicer):
    """Stands between one node and its orchestrators. When it leads to another one, the node dials in again, but the one
    of before is told nothing, and what that one says from then on comes on the node's new stream.

    Attributes:
        refused: the reasons by which the node has refused commands.
        endings: why orchestrators have ended their streams.
    """

    def __init__(self, path: Path, target: str) -> None:
        self.address = f"unix://{path}"
        self._target = target
        self.refused: list[str] = []
        self.endings: list[str] = []
        self._to_node: SimpleQueue[pb.OrchestratorMessage | None] = SimpleQueue()
        self._by_epoch: dict[int, SimpleQueue[pb.AgentMessage | None]] = {}
        self._channels: list[grpc.Channel] = []
        self._server = grpc.server(ThreadPoolExecutor(4))
        agent_link_pb2_grpc.add_AgentLinkServicer_to_server(self, self._server)
        self._server.add_insecure_port(self.address)
        self._server.start()

    def lead_to(self, target: str) -> None:
        """Where the node's next stream goes; the present one ends."""
        self._target = target
        self._to_node.put(None)

    def close(self) -> None:
        """Ends everything."""
        self._to_node.put(None)
        for outbox in self._by_epoch.values():
            outbox.put(None)
        for channel in self._channels:
            channel.close()
        self._server.stop(0).wait(5)

    def Connect(self, messages: Iterator[pb.AgentMessage], context: Any) -> Iterator[pb.OrchestratorMessage]:  # noqa: N802
        to_node = self._to_node = SimpleQueue()
        context.add_callback(lambda: to_node.put(None))
        outbox: SimpleQueue[pb.AgentMessage | None] = SimpleQueue()
        self._channels.append(open_channel(self._target))
        stream = agent_link_pb2_grpc.AgentLinkStub(self._channels[-1]).Connect(iter(outbox.get, None))
        for work in ((self._hear_node, messages, outbox), (self._hear_orchestrator, stream, outbox)):
            threading.Thread(target=work[0], args=work[1:], daemon=True).start()
        yield from iter(to_node.get, None)

    def _hear_node(self, messages: Iterator[pb.AgentMessage], newest: SimpleQueue[pb.AgentMessage | None]) -> None:
        try:
            for message in messages:
                if message.result.refused.reason:
                    self.refused.append(message.result.refused.reason)
                self._by_epoch.get(message.result.epoch, newest).put(message)
        except grpc.RpcError:
            pass  # the node's stream has ended; the next one goes on

    def _hear_orchestrator(self, stream: Any, outbox: SimpleQueue[pb.AgentMessage | None]) -> None:
        try:
            for message in stream:
                if message.WhichOneof("message") == "welcome":
                    self._by_epoch[message.welcome.epoch] = outbox
                self._to_node.put(message)
        except grpc.RpcError as error:
            self.endings.append(error.details())
