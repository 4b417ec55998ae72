"""Errors over the wire: the only place where the hierarchy meets gRPC.

A server ends a call with the class's status code, the message as details, and an `ErrorDetail` in the trailing
metadata `timeslice-error-bin`; a client turns that back into the same class. A failure without the trailer came from
gRPC itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, cast

import grpc
from google.protobuf.message import DecodeError

from timeslice_api import errors, handshakes
from timeslice_api.v1alpha1 import types_pb2

TRAILER = "timeslice-error-bin"
# Bytes of UTF-8. An error may repeat what it was asked, which may be long; with more than 8 KiB of metadata, in which
# details may take three times their size, the caller's gRPC would put an error of its own in this one's place.
_LONGEST_TEXT = 1200
_LONGEST_NAME = 253


class Status(NamedTuple):
    """What a server ends a failed call with, in the order in which gRPC's `abort` takes it."""

    code: grpc.StatusCode
    details: str
    trailer: tuple[tuple[str, bytes], ...]


def of(error: errors.TimesliceError) -> Status:
    """An error as the status of a call. Texts that are too long for the wire are cut."""
    detail = types_pb2.ErrorDetail(
        kind=type(error).__name__,
        message=_cut(error.message, _LONGEST_TEXT),
        hint=_cut(error.hint, _LONGEST_TEXT),
        retryable=error.retryable,
        job_id=_cut(error.job_id, _LONGEST_NAME),
        group_id=_cut(error.group_id, _LONGEST_NAME),
        reason=error.reason if isinstance(error, errors.OperationFailed) else "",
    )
    return Status(grpc.StatusCode[error.code], detail.message, ((TRAILER, detail.SerializeToString()),))


def _cut(text: str, most: int) -> str:
    content = text.encode(errors="replace")  # names of files may have what is no text
    return content.decode() if len(content) <= most else content[: most - 3].decode(errors="ignore") + "..."


def from_rpc(error: grpc.RpcError) -> errors.TimesliceError:
    """The error that a failed call stands for; the caller raises it `from` the RpcError."""
    for key, value in _trailers(error):
        if key == TRAILER and isinstance(value, bytes):
            try:
                return _from_detail(types_pb2.ErrorDetail.FromString(value))
            except DecodeError:
                break
    return _from_code(error)


def _trailers(error: grpc.RpcError) -> Iterable[tuple[str, str | bytes]]:
    # The published types take the trailers for objects with attributes; they are pairs, in both flavours of gRPC.
    found = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    return cast(Iterable[tuple[str, str | bytes]], found or ())


def _from_detail(detail: types_pb2.ErrorDetail) -> errors.TimesliceError:
    cls = errors.by_name(detail.kind)
    error = cls(detail.message, hint=detail.hint, job_id=detail.job_id, group_id=detail.group_id)
    error.retryable = detail.retryable
    if isinstance(error, errors.OperationFailed):
        error.reason = detail.reason
    return error


# CANCELLED-not-by-me is how gRPC refuses requests of a burst; UNKNOWN is how it reports some broken connections.
_TRANSIENT = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNKNOWN,
}


# By what gRPC says when a message or the metadata of a call is over a limit: another try would be the same.
_TOO_LARGE = ("message larger than max", "metadata size exceeds")


def _from_code(error: grpc.RpcError) -> errors.TimesliceError:
    code, details = error.code(), error.details() or ""
    if code in _TRANSIENT:
        if meaning := handshakes.meaning_of(details):
            return errors.ConnectionLost(f"no connection: {meaning.message} ({details})", hint=meaning.hint)
        return errors.ConnectionLost(f"no answer: {details or code.name}")
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return errors.InvalidRequest(details)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and any(words in details for words in _TOO_LARGE):
        return errors.InvalidRequest(f"too large: {details}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return errors.QueueFull(details)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return errors.Unauthenticated(details)
    return errors.TimesliceError(f"{code.name}: {details}")
