"""Kubelet's side of a plugin's sockets: it finds registration sockets, registers, and calls, in either version."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc.aio
from dra_kubeletplugin import ClaimRef
from dra_kubeletplugin.kubelet_api import (
    dra_v1_pb2,
    dra_v1_pb2_grpc,
    dra_v1beta1_pb2,
    dra_v1beta1_pb2_grpc,
    health_v1_pb2,
    health_v1_pb2_grpc,
    health_v1alpha1_pb2,
    health_v1alpha1_pb2_grpc,
    registration_v1_pb2,
    registration_v1_pb2_grpc,
)

_DRA: dict[str, tuple[Any, Any]] = {
    "v1": (dra_v1_pb2, dra_v1_pb2_grpc),
    "v1beta1": (dra_v1beta1_pb2, dra_v1beta1_pb2_grpc),
}
_HEALTH: dict[str, tuple[Any, Any]] = {
    "v1": (health_v1_pb2, health_v1_pb2_grpc),
    "v1alpha1": (health_v1alpha1_pb2, health_v1alpha1_pb2_grpc),
}


@asynccontextmanager
async def connected(path: Path | str) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(
        f"unix://{path}", options=[("grpc.default_authority", "localhost")]
    ) as channel:
        yield channel


@dataclass
class FakeKubelet:
    """`plugins` has the endpoint of each registration socket, the newest last, as long as it stays registered."""

    registry: Path
    plugins: dict[Path, str] = field(default_factory=dict)

    def sockets(self) -> list[Path]:
        return sorted(self.registry.glob("[!.]*.sock"))

    async def register(self, path: Path, *, refusal: str = "") -> Any:
        """As kubelet does for a socket it has found; with a refusal it tells the plugin why it cannot use it."""
        async with connected(path) as channel:
            stub: Any = registration_v1_pb2_grpc.RegistrationStub(channel)
            info = await stub.GetInfo(registration_v1_pb2.InfoRequest(), timeout=1)
            status = registration_v1_pb2.RegistrationStatus(plugin_registered=not refusal, error=refusal)
            await stub.NotifyRegistrationStatus(status, timeout=5)
        self.plugins[path] = info.endpoint
        return info

    async def register_all(self) -> None:
        for path in self.sockets():
            if path not in self.plugins:
                await self.register(path)

    @property
    def endpoint(self) -> str:
        return list(self.plugins.values())[-1]

    async def prepare(self, *refs: ClaimRef, version: str = "v1", timeout_s: float = 45, endpoint: str = "") -> Any:
        return await self._call("Prepare", refs, version, timeout_s, endpoint)

    async def unprepare(self, *refs: ClaimRef, version: str = "v1", timeout_s: float = 45, endpoint: str = "") -> Any:
        return await self._call("Unprepare", refs, version, timeout_s, endpoint)

    @asynccontextmanager
    async def health(self, version: str = "v1") -> AsyncIterator[AsyncIterator[Any]]:
        messages, services = _HEALTH[version]
        async with connected(self.endpoint) as channel:
            call = services.DRAResourceHealthStub(channel).NodeWatchResources(messages.NodeWatchResourcesRequest())
            try:
                yield call
            finally:
                call.cancel()

    async def _call(self, what: str, refs: Any, version: str, timeout_s: float, endpoint: str) -> Any:
        messages, services = _DRA[version]
        claims = [messages.Claim(namespace=ref.namespace, name=ref.name, uid=ref.uid) for ref in refs]
        request = getattr(messages, f"Node{what}ResourcesRequest")(claims=claims)
        async with connected(endpoint or self.endpoint) as channel:
            method = getattr(services.DRAPluginStub(channel), f"Node{what}Resources")
            response = await method(request, timeout=timeout_s)
        return response.claims
