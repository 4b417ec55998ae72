"""Around every call: decoding, logging, and the one place where errors become gRPC statuses."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from timeslice_api import status
from timeslice_api.errors import InvalidRequest, TimesliceError

_log = logging.getLogger(__name__)

# in quotes: at run time these classes take no parameters
_Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
_Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
_NAMED = ("request_id", "lease_id", "job_id", "group_id")  # fields of requests that go into the log


class Calls(grpc.aio.ServerInterceptor):
    """The server's interceptor. It wraps the handler of each method once.

    A `TimesliceError` ends the call with its status and trailer. Bytes that are no message end it with
    INVALID_ARGUMENT (gRPC's own answer would be UNKNOWN). Anything else is a defect of ours: logged, and told as
    INTERNAL without details.
    """

    def __init__(self) -> None:
        self._wrapped: dict[str, _Handler] = {}

    async def intercept_service(
        self,
        continuation: Callable[[grpc.HandlerCallDetails], Awaitable[_Handler | None]],
        handler_call_details: grpc.HandlerCallDetails,
    ) -> _Handler | None:
        """The wrapped handler of the method; None for an unknown one."""
        method = handler_call_details.method
        wrapped = self._wrapped.get(method)
        if wrapped is None:
            handler = await continuation(handler_call_details)
            if handler is None:  # not cached: a caller can make up any number of names
                return None
            wrapped = self._wrapped[method] = _wrap(handler, method)
        return wrapped


def _wrap(handler: _Handler, method: str) -> _Handler:
    # Requests arrive as bytes and are decoded inside, where a failure becomes a status.
    decode = _decoder(handler)
    to_bytes = handler.response_serializer
    if handler.unary_unary is not None:
        return grpc.unary_unary_rpc_method_handler(_unary(handler.unary_unary, decode, method), None, to_bytes)
    if handler.unary_stream is not None:
        return grpc.unary_stream_rpc_method_handler(_unary(handler.unary_stream, decode, method), None, to_bytes)
    return grpc.stream_stream_rpc_method_handler(_stream(handler.stream_stream, decode, method), None, to_bytes)


def _decoder(handler: _Handler) -> Callable[[bytes], Any]:
    parse = handler.request_deserializer
    assert parse is not None  # generated code always sets it

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
    await context.abort(status.code_of(error), error.message, status.trailer_of(error))


async def _admit_defect(context: _Context, method: str, request: Any) -> None:
    _log.exception("%s %s failed by a defect", method, named(request), extra=_fields(request))
    error = TimesliceError("internal error", hint="the orchestrator's log has the details")
    await context.abort(status.code_of(error), error.message, status.trailer_of(error))


def named(request: Any) -> str:
    """What a request is about, for the log: `request_id=... job_id=...`. Long values are cut."""
    return " ".join(f"{field}={value}" for field, value in _fields(request).items())


def _fields(request: Any) -> dict[str, str]:
    values = ((field, getattr(request, field, "")) for field in _NAMED)
    return {field: str(value)[:253] for field, value in values if value}
