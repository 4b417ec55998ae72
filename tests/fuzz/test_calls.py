"""Any bytes to any method: an answer or a typed refusal, in time, and the server serves the next caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message_factory import GetMessageClass
from gpu_emulator.emulator import Emulator
from hypothesis import given
from hypothesis import strategies as st
from node_world import World
from running_orchestrator import Running
from spoiling import LIMIT, fuzzed, messages, spoilt_bytes
from timeslice_api.v1alpha1 import agent_link_pb2, orchestrator_pb2, snapshot_agent_pb2
from timeslice_orchestrator.core.model import Settings

pytestmark = [LIMIT]

ORCHESTRATOR = orchestrator_pb2.DESCRIPTOR.services_by_name["Orchestrator"].methods_by_name
AGENT = snapshot_agent_pb2.DESCRIPTOR.services_by_name["SnapshotAgent"].methods_by_name
TYPED = {
    grpc.StatusCode.OK,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,  # it waits, as it was asked to
}
GROUPS = "groups: {g: {devices: {n1: [d1]}}}"
LIMIT_S = 0.2


def requests(method: MethodDescriptor) -> st.SearchStrategy[bytes]:
    """Requests of the method, some of them spoilt."""
    good = messages(GetMessageClass(method.input_type)).map(lambda message: message.SerializeToString())
    return st.one_of(good, good.flatmap(spoilt_bytes))


def asked_of(methods: Mapping[str, MethodDescriptor]) -> st.SearchStrategy[tuple[MethodDescriptor, bytes]]:
    chosen = st.sampled_from([methods[name] for name in sorted(methods)])
    return chosen.flatmap(lambda method: st.tuples(st.just(method), requests(method)))


SAID = st.lists(
    st.one_of(
        messages(agent_link_pb2.AgentMessage).map(lambda message: message.SerializeToString()),
        st.binary(max_size=40),
        st.just(
            agent_link_pb2.AgentMessage(
                hello=agent_link_pb2.Hello(node="n1", boot_id="b", devices=[{"device_id": "d1"}])
            ).SerializeToString()
        ),
    ),
    max_size=4,
)


async def outcome(channel: grpc.aio.Channel, method: MethodDescriptor, raw: bytes) -> grpc.StatusCode:
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.server_streaming:
            await channel.unary_stream(path)(raw, timeout=LIMIT_S).read()
        else:
            await channel.unary_unary(path)(raw, timeout=LIMIT_S)
    except grpc.aio.AioRpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest_asyncio.fixture
async def orchestrator(folder: Path) -> AsyncIterator[Running]:
    groups = folder / "groups.yaml"
    groups.write_text(GROUPS)
    running = Running(folder, Settings(), groups_file=groups)
    await running.start()
    yield running
    assert (await running.group()).group_id == "g"  # it lives
    await running.close()


@fuzzed
@given(asked=asked_of(ORCHESTRATOR))
async def test_any_call_of_the_orchestrator_is_answered_or_refused(
    orchestrator: Running, asked: tuple[MethodDescriptor, bytes]
) -> None:
    assert await outcome(orchestrator.channel, *asked) in TYPED


@fuzzed
@given(said=SAID)
async def test_anything_that_a_node_says_is_heard_or_refused(orchestrator: Running, said: list[bytes]) -> None:
    connect = orchestrator.channel.stream_stream("/timeslice.v1alpha1.AgentLink/Connect")
    stream: Any = connect(timeout=2)
    try:
        for raw in said:
            await stream.write(raw)
        await stream.done_writing()
        while await stream.read() is not grpc.aio.EOF:
            pass
    except (grpc.aio.AioRpcError, grpc.aio.UsageError, asyncio.InvalidStateError):  # refused while it still spoke
        pass
    # gRPC itself says INTERNAL of a message that is written when the call has just been refused; ours has other words.
    assert await stream.code() in TYPED or "Internal error from Core" in str(await stream.details())


@pytest_asyncio.fixture
async def world(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    with Emulator(memory=64 << 20) as emulator:
        for name, value in emulator.variables.items():
            monkeypatch.setenv(name, value)
        made = World(emulator, folder)
        await made.start()
        yield made
        assert isinstance(await made.parts(), dict)  # it lives
        await made.stop()


@pytest.mark.processes
@fuzzed
@given(asked=asked_of(AGENT))
async def test_any_call_of_the_node_is_answered_or_refused(world: World, asked: tuple[MethodDescriptor, bytes]) -> None:
    async with grpc.aio.insecure_channel(
        f"unix:{world.folder}/node.sock", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        assert await outcome(channel, *asked) in TYPED


@pytest.mark.processes
@pytest.mark.parametrize("method", AGENT.values(), ids=AGENT.keys())
async def test_a_name_of_thousands_of_letters_is_answered_or_refused_by_the_node_itself(
    world: World, method: MethodDescriptor
) -> None:
    async with grpc.aio.insecure_channel(
        f"unix:{world.folder}/node.sock", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        assert await outcome(channel, method, b"\n\x01g\x12\x88'" + b"9" * 5000) in TYPED
