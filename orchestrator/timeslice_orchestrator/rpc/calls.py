"""Around every call: decoding, logging, and the one place where errors become gRPC statuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from timeslice_api import status
from timeslice_api.errors import InvalidRequest, TimesliceError, Unavailable

_log = logging.getLogger(__name__)

# in quotes: at run time these classes take no parameters
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_REQUEST_S = 10.0  # from a call's beginning to its request, which is small and comes with it
_NAMED = ("request_id", "lease_id", "job_id", "group_id")  # fields of requests that go into the log


def serve(server: grpc.aio.Server, service: ServiceDescriptor, servicer: object, *, by_strangers: bool = False) -> None:
    """Has the server answer each method of a service by the servicer's coroutine function of that name.

    `by_strangers`: a call is ended when its request does not come. gRPC itself waits for that as long as the caller
    likes, before anybody is asked who it is, and each such call costs 20 KiB. To see to it costs a tenth of an
    empty call.

    A `TimesliceError` ends the call with its status and trailer. Bytes that are no message end it with
    INVALID_ARGUMENT (gRPC's own answer would be UNKNOWN). Anything else is a defect of ours: logged, and told as
    INTERNAL without details.
    """
    handlers = {
        method.name: _handler(method, getattr(servicer, method.name), by_strangers) for method in service.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service.full_name, handlers),))
    # Calls of a method that is known by its name are accepted beside those of others, else one at a time (measured: a
    # tenth less processor time for each hand-off). Only a newer gRPC has that.
    if hasattr(server, "add_registered_method_handlers"):
        server.add_registered_method_handlers(service.full_name, handlers)


def _handler(method: MethodDescriptor, call: Any, by_strangers: bool) -> _Handler:
    decode, name = _decoder(method), f"/{method.containing_service.full_name}/{method.name}"
    to_bytes = GetMessageClass(method.output_type).SerializeToString
    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(_stream(call, decode, name), None, to_bytes)
    handle = _unary(call, decode, name)
    if by_strangers and method.server_streaming:
        return grpc.stream_stream_rpc_method_handler(_hurried(handle, name), None, to_bytes)
    if by_strangers:
        return grpc.stream_unary_rpc_method_handler(_hurried(handle, name), None, to_bytes)
    answering = grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
    return answering(handle, None, to_bytes)


def _decoder(method: MethodDescriptor) -> Callable[[bytes], Any]:
    """Requests arrive as bytes and are decoded inside the call, where a failure becomes a status."""
    parse = GetMessageClass(method.input_type).FromString

    def decode(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError as error:
            raise InvalidRequest(f"the request is not a message of this method: {error}") from error

    return decode


def _unary(call: Any, decode: Callable[[bytes], Any], method: str) -> Any:
    async def handle(raw: bytes, context: _Context) -> Any:
        request: Any = None
        try:
            request = decode(raw)
            return await call(request, context)
        except TimesliceError as error:
            await _refuse(context, method, request, error)
        except Exception:  # noqa: BLE001 - the outermost frame of a call
            await _admit_defect(context, method, request)

    return handle


def _hurried(handle: Any, method: str) -> Any:
    """The call, when its request has come in time."""

    async def hurried(raws: AsyncIterator[bytes], context: _Context) -> Any:
        try:
            raw = await _only(raws)
        except TimesliceError as error:
            await _refuse(context, method, None, error)
        else:
            return await handle(raw, context)

    return hurried


async def _only(raws: AsyncIterator[bytes]) -> bytes:
    try:
        async with asyncio.timeout(_REQUEST_S):
            return await anext(raws)
    except TimeoutError:
        raise Unavailable(f"no request came within {_REQUEST_S:g} s") from None
    except StopAsyncIteration:
        raise InvalidRequest("the call ended without a request") from None


def _stream(call: Any, decode: Callable[[bytes], Any], method: str) -> Any:
    async def decoded(raws: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        async for raw in raws:
            yield decode(raw)

    async def handle(raws: AsyncIterator[bytes], context: _Context) -> None:
        try:
            await call(decoded(raws), context)
        except TimesliceError as error:
            await _refuse(context, method, None, error)
        except Exception:  # noqa: BLE001 - the outermost frame of a call
            await _admit_defect(context, method, None)

    return handle


async def _refuse(context: _Context, method: str, request: Any, error: TimesliceError) -> None:
    level = logging.DEBUG if error.retryable else logging.INFO
    if _log.isEnabledFor(level):
        fields = {**_fields(request), "error": type(error).__name__}
        _log.log(level, "refused %s %s: %s", method, named(request), error, extra=fields)
    await context.abort(*status.of(error))


async def _admit_defect(context: _Context, method: str, request: Any) -> None:
    _log.exception("%s %s failed by a defect", method, named(request), extra=_fields(request))
    error = TimesliceError("internal error", hint="the orchestrator's log has the details")
    await context.abort(*status.of(error))


def named(request: Any) -> str:
    """What a request is about, for the log: `request_id=... job_id=...`. Long values are cut."""
    return " ".join(f"{field}={value}" for field, value in _fields(request).items())


def _fields(request: Any) -> dict[str, str]:
    values = ((field, getattr(request, field, "")) for field in _NAMED)
    return {field: str(value)[:253] for field, value in values if value}
