"""What reaches a node from the network: commands on the stream that it opened, for members by name; nothing else."""

from __future__ import annotations

from collections.abc import Iterator

from google.protobuf.descriptor import Descriptor
from timeslice_api.v1alpha1 import agent_link_pb2


def fields(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        yield f"{message.name}.{field.name}"
        if field.message_type is not None:
            yield from fields(field.message_type)


def test_no_command_of_an_orchestrator_can_name_a_process_a_file_or_an_address() -> None:
    told = set(fields(agent_link_pb2.OrchestratorMessage.DESCRIPTOR))
    assert "Command.targets" in told
    words = ("pid", "process", "path", "file", "url", "endpoint", "address", "socket", "argv", "env")
    assert [name for name in told if any(word in name.partition(".")[2] for word in words)] == []
