"""The one stream to the orchestrator: the node dials, tells what it has, obeys, and reports.

A broken stream changes nothing on the node. Commands under way go on; before the next hello their end is awaited, so
that the hello tells the truth. Protocol: agent_link.proto.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import grpc.aio
from timeslice_api.addresses import authority_of, checked_address
from timeslice_api.errors import ConfigError, TokenMissing
from timeslice_api.limits import CHANNEL_LIMITS
from timeslice_api.status import from_rpc
from timeslice_api.tasks import until_one_ends
from timeslice_api.tls import TlsFiles, channel_credentials
from timeslice_api.tokens import TokenFile
from timeslice_api.v1alpha1 import agent_link_pb2 as pb
from timeslice_api.v1alpha1 import agent_link_pb2_grpc

from timeslice_driver import wire
from timeslice_driver.commands import Command, Commands
from timeslice_driver.faults import Fault
from timeslice_driver.groups import Groups
from timeslice_driver.parts import Member, Part
from timeslice_driver.table import Table

log = logging.getLogger(__name__)

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 2.0
_WELCOME_S: Final = 10.0
_TOLD_AGAIN: Final = 256  # ended processes, on the next stream: no hello tells of them, and the last words may be lost
_OPTIONS: Final = (
    ("grpc.keepalive_time_ms", 10_000),  # a peer that is cut off without a word is noticed by this alone
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.use_local_subchannel_pool", 1),  # each dial tries at once; the pauses between them are ours
    *CHANNEL_LIMITS,
    ("grpc.enable_http_proxy", 0),  # a proxy of the site is for the world outside, not for the orchestrator
)
_Stream: TypeAlias = Any  # grpc.aio.StreamStreamCall, whose stubs know neither EOF nor a stream without an iterator


class LinkRefusedError(Exception):
    """The orchestrator ended the stream, or did not begin it as a leader whose time has come."""


class Link:
    """Keeps a stream to an orchestrator for as long as it runs.

    Args:
        address: of the orchestrator, see `timeslice_api.addresses`. Each dial begins with the first of several.
        tokens: say to it which node this is; None: it needs to be told nothing.
        tls: the node's files, read again for each dial; see timeslice_api.tls.
        hello: makes the first message, from the state at that moment.
        declared: the groups that the node declares now.
        adopt: told of the groups that the orchestrator says the node has.
    """

    def __init__(
        self,
        address: str,
        *,
        tokens: TokenFile | None = None,
        tls: TlsFiles,
        table: Table,
        commands: Commands,
        hello: Callable[[], Awaitable[pb.Hello]],
        declared: Callable[[], Groups],
        adopt: Callable[[Groups], None],
    ) -> None:
        self._address = address
        self._target = checked_address(address)
        self._options = (*_OPTIONS, *((("grpc.default_authority", name),) if (name := authority_of(address)) else ()))
        self._tokens = tokens
        self._tls = tls
        self._table = table
        self._commands = commands
        self._hello = hello
        self._declared = declared
        self._adopt = adopt
        self._told_groups = Groups()
        self._outbox: asyncio.Queue[pb.AgentMessage] = asyncio.Queue()
        self._changed: set[Member] = set()
        self._ended: set[Member] = set()
        self._ended_processes: deque[str] = deque(maxlen=_TOLD_AGAIN)
        self._untold: list[str] = []  # of these, on this stream
        self._news = asyncio.Event()
        self._obeying: set[asyncio.Task[None]] = set()
        self._defects: asyncio.Queue[BaseException] = asyncio.Queue()
        self.connected = asyncio.Event()

    def tell_end(self, member: Member) -> None:
        """Has a part reported as ended."""
        self._ended.add(member)
        self._news.set()

    def tell_process_end(self, process: str) -> None:
        """Has the end of a registered process reported, by its name."""
        self._ended_processes.append(process)
        self._untold.append(process)
        self._news.set()

    def tell_groups(self) -> None:
        """Has the groups told that the node declares, if they are others than those told before."""
        self._news.set()

    async def run(self) -> None:
        """Dials, serves and dials again, until it is cancelled."""
        unlisten = self._table.listen(self._tell_change)
        pause = _FIRST_PAUSE_S
        try:
            while True:
                try:
                    await self._serve_once()
                except (grpc.aio.AioRpcError, LinkRefusedError, ConfigError, TokenMissing, TimeoutError) as error:
                    log.warning("no link to the orchestrator at %s: %s", self._address, _words(error))
                except Exception:  # the outermost loop: whatever it was, the node must not stay cut off
                    log.exception("the link to the orchestrator at %s broke", self._address)
                pause = _FIRST_PAUSE_S if self.connected.is_set() else min(2 * pause, _LONGEST_PAUSE_S)
                self.connected.clear()
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
        finally:
            unlisten()

    async def _serve_once(self) -> None:
        await self._commands.all_done()
        async with self._channel() as channel:
            connect: Any = agent_link_pb2_grpc.AgentLinkStub(channel).Connect
            stream: _Stream = connect(metadata=self._tokens.metadata() if self._tokens else None)
            try:
                await self._greet(stream)
                await self._converse(stream)
            finally:
                stream.cancel()

    def _channel(self) -> grpc.aio.Channel:
        credentials = channel_credentials(self._address, self._tls)
        if credentials is None:
            return grpc.aio.insecure_channel(self._target, options=self._options)
        return grpc.aio.secure_channel(self._target, credentials, options=self._options)

    async def _greet(self, stream: _Stream) -> None:
        async with asyncio.timeout(_WELCOME_S):
            self._outbox = asyncio.Queue()
            self._changed.clear()
            self._ended.clear()
            self._untold = list(self._ended_processes)
            hello = await self._hello()
            self._told_groups = wire.from_groups(hello.groups)
            await stream.write(pb.AgentMessage(hello=hello))
            answer = await stream.read()
        if answer is grpc.aio.EOF or answer.WhichOneof("message") != "welcome":
            raise LinkRefusedError("the stream did not begin with a welcome")
        epoch, known = answer.welcome.epoch, self._commands.watermark.epoch
        if epoch < known:
            raise LinkRefusedError(f"its epoch {epoch} is over: epoch {known} has begun")
        self._commands.watermark = self._commands.watermark.led_by(epoch)
        self._adopt(wire.from_groups(answer.welcome.groups))
        self.connected.set()
        self._news.set()
        log.info("linked to the orchestrator at %s, epoch %d", self._address, epoch)

    async def _converse(self, stream: _Stream) -> None:
        self._defects = asyncio.Queue()
        await until_one_ends(self._listen(stream), self._speak(stream), self._report(), self._fail())

    async def _listen(self, stream: _Stream) -> None:
        while (message := await stream.read()) is not grpc.aio.EOF:
            match message.WhichOneof("message"):
                case "command":
                    task = asyncio.create_task(self._obey(message.command))
                    self._obeying.add(task)
                    task.add_done_callback(self._obeyed)
                case "groups":
                    self._adopt(wire.from_groups(message.groups.groups))
        code, details = await stream.code(), await stream.details()
        raise LinkRefusedError(f"it ended the stream: {code.name} {details}")

    def _obeyed(self, task: asyncio.Task[None]) -> None:
        self._obeying.discard(task)
        if not task.cancelled() and (defect := task.exception()):
            self._defects.put_nowait(defect)

    async def _fail(self) -> None:
        """A command without a result would be waited for as long as the stream lasts; the next hello tells how its
        parts are."""
        raise await self._defects.get()

    async def _obey(self, message: pb.Command) -> None:
        try:
            command = wire.from_command(message)
        except ValueError as error:
            refused = Fault("InvalidCommand", str(error))
            result = pb.Result(command_id=message.command_id, epoch=message.epoch, refused=wire.to_fault(refused))
        else:
            result = await self._result_of(command)
        # If the link broke meanwhile this goes out on the next one, where it is news of parts and no more.
        self._outbox.put_nowait(pb.AgentMessage(result=result))

    async def _result_of(self, command: Command) -> pb.Result:
        answer = await self._commands.obey(command)
        for part in answer.parts:
            if not self._commands.busy(part.member):
                self._changed.discard(part.member)  # the result tells it
        return wire.to_result(answer)

    async def _speak(self, stream: _Stream) -> None:
        while True:
            await stream.write(await self._outbox.get())

    async def _report(self) -> None:
        """Changes without a command. What a command moves is told by its result."""
        while True:
            await self._news.wait()
            self._news.clear()
            still = {member for member in self._changed if not self._commands.busy(member)}
            self._changed -= still
            ended, self._ended = self._ended, set()
            processes, self._untold = self._untold, []
            self._say_news(
                parts=[part for member in sorted(still) if (part := self._table.get(member))],
                ended=[member for member in sorted(ended) if not self._table.get(member)],
            )
            if processes:
                self._outbox.put_nowait(pb.AgentMessage(report=pb.Report(ended_processes=processes)))

    def _say_news(self, parts: list[Part], ended: list[Member]) -> None:
        """Who has left a device, then what its group is now, then who has come."""
        groups = self._declared()
        if groups == self._told_groups:
            self._say_report(parts, ended)
            return
        self._told_groups = groups
        self._say_report([], ended)
        self._outbox.put_nowait(pb.AgentMessage(groups=pb.NodeGroups(groups=wire.to_groups(groups))))
        self._say_report(parts, [])

    def _say_report(self, parts: list[Part], ended: list[Member]) -> None:
        if parts or ended:
            report = pb.Report(parts=wire.to_parts(parts), ended=map(wire.to_member, ended))
            self._outbox.put_nowait(pb.AgentMessage(report=report))

    def _tell_change(self, member: Member) -> None:
        self._changed.add(member)
        self._news.set()


def _words(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        error = from_rpc(error)
    return str(error) or type(error).__name__
