"""An orchestrator that jobs, nodes and people reach over TCP, each with a token, or with none, or with a bad one."""

from __future__ import annotations

import json
from collections.abc import Awaitable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc.aio
from running_orchestrator import Running, open_channel, stub_of
from scripted_node import ScriptedNode
from timeslice_orchestrator.access.tokens_file import digest_of

ENTRIES: dict[str, dict[str, Any]] = {
    "trainers": {"role": "job", "jobs": ["job-a"], "groups": ["g"]},
    "neighbours": {"role": "job", "jobs": ["job-b"]},
    "anybody": {"role": "job"},
    "n1": {"role": "node", "node": "n1"},
    "n2": {"role": "node", "node": "n2"},
    "operators": {"role": "admin"},
}


def token_of(name: str) -> str:
    return f"the-token-of-{name}"


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    return (("authorization", f"Bearer {token}"),)


def as_(name: str) -> tuple[tuple[str, str], ...]:
    return bearer(token_of(name)) if name else ()


def write_tokens(path: Path, *names: str) -> Path:
    entries = [{"name": name, "token_sha256": digest_of(token_of(name)), **ENTRIES[name]} for name in names]
    path.write_text(json.dumps({"tokens": entries}))  # JSON is YAML
    return path


class Network:
    """The orchestrator, with a socket for its owner and a port for everybody else. `n1` has d1 in `g` and d2 in `h`."""

    def __init__(self, folder: Path) -> None:
        self.tokens = write_tokens(folder / "tokens.yaml", *ENTRIES)
        self.socket = f"unix://{folder}/o.sock"
        self.running = Running(folder, listen=(self.socket, "127.0.0.1:0"), tokens_file=self.tokens)
        self.channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        await self.running.start()
        self.channel = open_channel(self.running.server.addresses[1])
        self.stub = stub_of(self.channel)
        self.node = self.dial("n1", {"g": ("d1",), "h": ("d2",)}, token="n1")
        await self.node.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self.channel
        await self.node.cut()
        await self.channel.close()
        await self.running.close()

    def dial(self, name: str, groups: dict[str, tuple[str, ...]], *, token: str) -> ScriptedNode:
        """A node with somebody's token."""
        assert self.channel
        return ScriptedNode(self.channel, name, groups, metadata=as_(token))

    async def call(self, call: Awaitable[Any]) -> Any:
        """The answer; errors are those of timeslice_api."""
        return await self.running.call(call)
