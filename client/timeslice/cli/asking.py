"""One call to the orchestrator, for commands that ask it something."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc
from timeslice_api.status import from_rpc
from timeslice_api.v1alpha1 import orchestrator_pb2_grpc

from timeslice.channel import open_channel
from timeslice.cli.options import orchestrator_address, tls_of_dialler
from timeslice.presenting import presenting

TIMEOUT_S = 10.0
RESET_TIMEOUT_S = 40.0  # a node may have to ask a driver that hangs

Answer = TypeVar("Answer")


@contextmanager
def orchestrator(arguments: argparse.Namespace) -> Iterator[orchestrator_pb2_grpc.OrchestratorStub]:
    """The orchestrator that the options mean. Raises ConfigError when they mean none."""
    with open_channel(orchestrator_address(arguments), tls_of_dialler(arguments)) as channel:
        yield orchestrator_pb2_grpc.OrchestratorStub(presenting(channel, arguments.token_file or ""))


def ask(method: Callable[..., Answer], request: Any, *, timeout_s: float = TIMEOUT_S) -> Answer:
    """The answer, within so many seconds.

    Raises:
        TimesliceError: refused, or nobody answers.
    """
    try:
        return method(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise from_rpc(error) from error
