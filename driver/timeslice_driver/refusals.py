"""How a call on the node's socket is refused: the error's status and trailer, for bytes that are no message too."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, NoReturn, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from timeslice_api import status
from timeslice_api.errors import InvalidRequest, TimesliceError

log = logging.getLogger(__name__)

# in quotes: at run time these classes take no parameters
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


async def refuse(context: _Context, error: TimesliceError, **about: str) -> NoReturn:
    """Ends the call with an error. ``about`` are further fields of the line that the log has of it."""
    fields = {"job_id": error.job_id, "group_id": error.group_id, **about}
    log.info("refused: %s", error, extra={field: value for field, value in fields.items() if value})
    await context.abort(*status.of(error))
    raise AssertionError("abort returned")


class Decoding(grpc.aio.ServerInterceptor):
    """Refuses bytes that are no message as InvalidRequest. gRPC's own answer, UNKNOWN, reads like a broken connection,
    which a client would repeat.
    """

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """The wrapped handler of the method; None for an unknown one."""
        handler = await continuation(handler_call_details)
        return _wrapped(handler) if handler is not None else None


def _wrapped(handler: _Handler) -> _Handler:
    decode = _decoder(handler)
    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary), decode, handler.response_serializer)
    return grpc.unary_stream_rpc_method_handler(_stream(handler.unary_stream), decode, handler.response_serializer)


def _decoder(handler: _Handler) -> Callable[[bytes], Any]:
    parse = handler.request_deserializer
    assert parse is not None  # generated code always sets it

    def decode(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError as error:
            return InvalidRequest(f"the request is not a message of this method: {error}")

    return decode


def _unary(call: Any) -> Any:
    async def handle(request: Any, context: _Context) -> Any:
        if isinstance(request, InvalidRequest):
            await refuse(context, request)
        return await call(request, context)

    return handle


def _stream(call: Any) -> Any:
    async def handle(request: Any, context: _Context) -> AsyncIterator[Any]:
        if isinstance(request, InvalidRequest):
            await refuse(context, request)
        async with aclosing(call(request, context)) as answers:
            async for answer in answers:
                yield answer

    return handle
