"""A channel whose calls say who makes them: each carries the token that is in a file at that moment.

gRPC's own call credentials need TLS, which sockets and the loopback do not have, and its interceptors would put a layer
around every call; this puts one argument into it.
"""

from __future__ import annotations

from typing import Any, cast

import grpc
from timeslice_api import status
from timeslice_api.errors import TokenMissing
from timeslice_api.tokens import Metadata, TokenFile


def presenting(channel: grpc.Channel, token_file: str) -> grpc.Channel:
    """The channel for a stub: one that presents the token in the file, or just the channel when there is no file."""
    return cast(grpc.Channel, PresentingChannel(channel, TokenFile(token_file))) if token_file else channel


class PresentingChannel:
    """What stubs need of a channel.

    Args:
        channel: carries the calls; closing it stays its owner's.
        tokens: asked at every call. While there is none, calls fail with TokenMissing, which may be repeated.
    """

    def __init__(self, channel: grpc.Channel, tokens: TokenFile) -> None:
        self._channel = channel
        self._tokens = tokens

    def unary_unary(self, *arguments: Any, **options: Any) -> Any:
        """See grpc.Channel."""
        return _Presenting(self._channel.unary_unary(*arguments, **options), self._tokens)

    def unary_stream(self, *arguments: Any, **options: Any) -> Any:
        """See grpc.Channel."""
        return _Presenting(self._channel.unary_stream(*arguments, **options), self._tokens)


class _Presenting:
    """A method; its callers know nothing of tokens."""

    def __init__(self, method: Any, tokens: TokenFile) -> None:
        self._method = method
        self._tokens = tokens

    def __call__(self, request: Any, timeout: float | None = None) -> Any:
        return self._method(request, timeout=timeout, metadata=self._metadata())

    def future(self, request: Any, timeout: float | None = None) -> Any:
        return self._method.future(request, timeout=timeout, metadata=self._metadata())

    def _metadata(self) -> Metadata:
        try:
            return self._tokens.metadata()
        except TokenMissing as error:
            raise _NotSentError(error) from error


class _NotSentError(grpc.RpcError):
    """As if the server had said it, so that there is one way to handle what a call meets."""

    def __init__(self, error: TokenMissing) -> None:
        super().__init__(error.message)
        self._status = status.of(error)

    def code(self) -> grpc.StatusCode:
        return self._status.code

    def details(self) -> str:
        return self._status.details

    def trailing_metadata(self) -> Any:
        return self._status.trailer
