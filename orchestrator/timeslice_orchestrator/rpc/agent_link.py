"""The stream on which a node dials in: hello and welcome, then commands down, reports and results up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any, TypeAlias

import grpc.aio
from timeslice_api.errors import InvalidRequest, Unavailable
from timeslice_api.tasks import cancelled
from timeslice_api.v1alpha1 import agent_link_pb2 as pb

from timeslice_orchestrator.access.caller import Act, Wish
from timeslice_orchestrator.access.gate import Gate
from timeslice_orchestrator.core.events import NodeConnected, NodeLost
from timeslice_orchestrator.discovery import Discovery
from timeslice_orchestrator.engine import Engine
from timeslice_orchestrator.rpc import reports
from timeslice_orchestrator.rpc.links import Link, Links

_log = logging.getLogger(__name__)

_HELLO_TIMEOUT_S = 10.0
_STALE_EPOCH = "StaleEpoch"  # the reason by which a node refuses a command of an older epoch

_Messages: TypeAlias = AsyncIterator[pb.AgentMessage]
# in quotes: at run time it takes no parameters
_Context: TypeAlias = "grpc.aio.ServicerContext[pb.AgentMessage, pb.OrchestratorMessage]"


class AgentLink:
    """Servicer of `AgentLink`.

    Args:
        engine: takes what nodes say as facts.
        links: the connected nodes.
        discovery: learns devices and groups from the hellos, and from what nodes declare later.
        gate: asked whether the caller is the node that the hello names.
    """

    def __init__(self, engine: Engine, links: Links, discovery: Discovery, gate: Gate) -> None:
        self._engine = engine
        self._gate = gate
        self._links = links
        self._discovery = discovery

    async def Connect(self, messages: _Messages, context: _Context) -> None:  # noqa: N802 - a method of the service
        """Serves one stream until it ends.

        Raises:
            Unauthenticated, Forbidden: the caller is not the node for which it speaks.
            InvalidRequest: a message of the node makes no sense; the error names the field.
            Unavailable: no hello came in time, a newer stream of the node took over, or the orchestrator stops.
        """
        caller = await self._gate.caller(context)
        hello = await _hello(messages)
        await self._gate.permit(caller, Wish(Act.SPEAK_FOR_NODE, node=hello.record.node))
        link = Link(hello.record)
        try:
            self._engine.refuse_when_stopped()  # a node that knows the successor must not make this one's epoch higher
            await self._links.go_above(hello.highest_epoch)
            self._connect(link, hello)
            await self._serve(link, messages, context)
        finally:
            if self._links.remove(link):
                _log.warning("node lost node=%s", link.node.node, extra={"node": link.node.node})
                self._engine.post(NodeLost(link.node.node))

    def _connect(self, link: Link, hello: reports.Hello) -> None:
        node = link.node.node
        self._engine.refuse_when_stopped()
        self._links.check(link.node)
        link.told_of(part.member for part in hello.parts)
        self._replace(node)
        self._discovery.node_said(link.node)
        link.welcome(self._links.epoch, self._discovery.groups_of(node))
        self._links.add(link)
        _log.info("node connected node=%s devices=%d parts=%d", node, len(link.node.devices), len(hello.parts))
        self._engine.post(NodeConnected(node, hello.parts, self._links.highest_token(hello.highest_token)))

    def _replace(self, node: str) -> None:
        old = self._links.find(node)
        if old is not None:
            self._links.remove(old)
            self._engine.post(NodeLost(node))
            old.end(Unavailable(f"a newer stream of node {node} has taken over", hint="is the node started twice?"))

    async def _serve(self, link: Link, messages: _Messages, context: _Context) -> None:
        """Reads and writes until one of both ends, or the link has to."""
        reading = asyncio.create_task(self._read(link, messages))
        writing = asyncio.create_task(_write(link, context))
        parts: set[asyncio.Future[Any]] = {reading, writing, link.ended}
        try:
            done, _ = await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            link.close()
            await writing  # gRPC refuses to end a call while a write is under way
            for part in done:
                part.result()
        finally:
            await cancelled(*parts)

    async def _read(self, link: Link, messages: _Messages) -> None:
        async for message in messages:
            if self._links.find(link.node.node) is not link:
                return  # a newer stream took over: its hello is the truth, and what this one still says is older
            match message.WhichOneof("message"):
                case "result":
                    self._take_result(link, message.result)
                case "report":
                    self._take_report(link, message.report)
                case "groups":
                    self._take_groups(link, message.groups)
                case "hello":
                    raise InvalidRequest("hello: it came twice in one stream")
                case _:
                    raise InvalidRequest("message: neither a report, nor a result, nor groups")

    def _take_report(self, link: Link, report: pb.Report) -> None:
        event = reports.report(report, link.node.node, link.devices)
        link.told_of((part.member for part in event.parts), ended=event.ended)
        self._engine.post(event)

    def _take_groups(self, link: Link, groups: pb.NodeGroups) -> None:
        link.node = reports.groups(groups, link.node)
        self._discovery.node_said(link.node)
        link.tell_groups(self._discovery.groups_of(link.node.node))

    def _take_result(self, link: Link, result: pb.Result) -> None:
        event = reports.result(result, link.node.node, link.devices)
        if event.refused is not None and event.refused.reason == _STALE_EPOCH:
            # The node has heard a higher epoch since its hello; only a new hello tells which one to go above.
            raise Unavailable(f"node {link.node.node} has seen a newer epoch than {self._links.epoch}; dial in again")
        if self._links.is_ours(result.epoch):
            link.told_of(part.member for part in event.parts)
            self._engine.post(event)
        else:  # of a predecessor, whose command ids mean nothing here; the hello told how the parts are
            _log.info("result of epoch %d ignored node=%s", result.epoch, link.node.node)


async def _hello(messages: _Messages) -> reports.Hello:
    try:
        async with asyncio.timeout(_HELLO_TIMEOUT_S):
            message = await anext(messages, None)
    except TimeoutError:
        raise Unavailable(f"no hello came within {_HELLO_TIMEOUT_S:g} s") from None
    if message is None or message.WhichOneof("message") != "hello":
        raise InvalidRequest("hello: it must be the first message of the stream")
    return reports.hello(message.hello)


async def _write(link: Link, context: _Context) -> None:
    while (message := await link.next()) is not None:
        await context.write(message)
