"""Whether the plugin works, asked the way kubelet asks: through its sockets."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health_pb2

from dra_kubeletplugin.faults import NotWorkingError
from dra_kubeletplugin.kubelet_api import dra_v1_pb2, dra_v1_pb2_grpc, registration_v1_pb2, registration_v1_pb2_grpc
from dra_kubeletplugin.sockets import Sockets

_LIMIT_S = 5.0
_CLIENT = (("grpc.default_authority", "localhost"),)  # else it is the path, which strict servers refuse


async def check(sockets: Sockets) -> None:
    """Asks for the plugin's information, and for nothing to be prepared.

    Raises:
        NotWorkingError: one of the two did not answer within 5 seconds, or not well.
    """
    await _ask(sockets.registration, _get_info)
    await _ask(sockets.service, _prepare_nothing)


class LivenessService:
    """grpc.health.v1 for kubelet's own gRPC probes; serving as long as `check` passes."""

    def __init__(self, check: Callable[[], Awaitable[None]]) -> None:
        self._check = check

    async def Check(self, request: Any, context: Any) -> Any:  # noqa: N802  the name on the wire
        """The same for every service that may be named."""
        try:
            await self._check()
        except NotWorkingError as error:
            context.set_details(str(error))
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.SERVING)

    def add_to(self, server: grpc.aio.Server) -> None:
        """Makes it one of the server's services. Watches are not offered: probes do not use them."""
        handler = grpc.unary_unary_rpc_method_handler(
            self.Check,
            request_deserializer=health_pb2.HealthCheckRequest.FromString,
            response_serializer=health_pb2.HealthCheckResponse.SerializeToString,
        )
        service = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {"Check": handler}),))


async def _ask(path: Path, question: Callable[[grpc.aio.Channel], Awaitable[object]]) -> None:
    try:
        async with grpc.aio.insecure_channel(f"unix://{path}", options=_CLIENT) as channel:
            await question(channel)
    except grpc.aio.AioRpcError as error:
        raise NotWorkingError(f"{path} does not answer as it should: {error.code().name} {error.details()}") from error


async def _get_info(channel: grpc.aio.Channel) -> object:
    stub: Any = registration_v1_pb2_grpc.RegistrationStub(channel)
    return await stub.GetInfo(registration_v1_pb2.InfoRequest(), timeout=_LIMIT_S)


async def _prepare_nothing(channel: grpc.aio.Channel) -> object:
    stub: Any = dra_v1_pb2_grpc.DRAPluginStub(channel)
    return await stub.NodePrepareResources(dra_v1_pb2.NodePrepareResourcesRequest(), timeout=_LIMIT_S)
